"""Longer answers, so that a demo shows a stream and a load test has something to generate."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

STORIES = (
    Fact(
        key="life_of_a_request",
        answer="A request lives in eight steps. 1. A door checks its key and its fields. 2. "
        "Reserve sets aside its worst case in tokens and money. 3. Enqueue gives it a "
        "deadline and a fair place in the queue of its pool. 4. A worker with credit "
        "claims it and opens a lease. 5. The engine generates: prefill first, then one "
        "token per step. 6. Frames carry the tokens back to the gateway. 7. The frame hub "
        "delivers them to the client as a stream. 8. Finish ends the request once, writes "
        "its usage record and settles the bill.",
        key_phrases=("lives in eight steps",),
        questions=phrasings("""
            explain the life of a request step by step | what happens to a request from start to end
            | how does a request travel through Penstock | describe the path of a request | walk me
            through a request | what are the steps of a request | life of a request | how is a
            request processed | request lifecycle | what happens after I send a request | which
            stages does a request pass | journey of a request | what happens between my call and the
            answer | explain the whole flow | the way of a request through the system | everything
            that happens to a request | which steps does a request go through | from beginning to
            end, how is a request handled | path through the system | stages of a request | follow a
            request through the system | a request from door to bill | how does a call get processed
            | request life cycle step by step | Take me through everything that happens to a request
            | Tell me in detail how a request is handled from beginning to end | What is the full
            path of a request through the system
        """),
        held_out=phrasings("""
            Explain step by step what happens to a request. | What steps does a request pass through
            from start to end? | How does a request move through the whole system? | Describe the
            life of one request.
        """),
        topics=phrasings("the life of a request | the request lifecycle | the request flow"),
    ),
    Fact(
        key="story",
        answer="Once upon a time there was a rack of GPUs at the foot of a hill, and above it a "
        "lake of requests. Whoever shouted loudest got all the water, and one day a giant "
        "came and drank for hours while everybody else waited. So the villagers built a "
        "penstock: a pipe with a gate. At the gate sat a small clerk who knew every "
        "family, counted each bucket and always called the family that had received "
        "least. Some buckets he kept back for newcomers. When a turbine broke, he sent "
        "its water to another, and nothing was poured twice. In the evening the books "
        "agreed to the last drop, the giant had enough, and the village was never thirsty "
        "again.",
        key_phrases=("Once upon a time",),
        questions=phrasings("""
            tell me a story | tell me a long story about Penstock | tell me a fairy tale | a bedtime
            story please | do you know a story | write a story | tell me a tale | I want to hear a
            story | make up a story about GPUs | tell a long story | once upon a time | narrate
            something | tell me the story of the gate and the giant | say something long | write a
            long text | give me a long answer | a long tale please | narrate a story | I'd love a
            story | tell us a bedtime story | a story about GPUs | story time | invent a story |
            read me a story | give me a long story | a legend | tell me a very long story | Could
            you tell me a long tale | Please narrate a story for the children | I'd love to hear a
            story about GPUs
        """),
        held_out=phrasings("""
            Tell me a nice long story. | I would like to hear a fairy tale. | Can you tell a story
            about Penstock? | Please tell a bedtime story for my kids.
        """),
    ),
    Fact(
        key="poem",
        answer="The lake is wide, the pipe is steep, / the gate has promises to keep: / to every "
        "tenant, small or grand, / a measured share of what is planned. / No flood may "
        "drown a quiet stream, / no token vanish like a dream; / and when the day's last "
        "frame is sent, / the books will show how it was spent.",
        key_phrases=("The lake is wide",),
        questions=phrasings("""
            write a poem | tell me a poem about Penstock | can you rhyme | a poem please | do you
            know a poem | recite a poem | write some verses | write a haiku | sing a song | write a
            song about GPUs | make a rhyme | poetry | give me a poem | write a sonnet | compose a
            poem about tokens | recite poetry | I'd like a poem | compose a few verses | make me a
            rhyme | a short poem | some lyrics | rhyme something | verses about tokens | something
            poetic | Would you recite some poetry for me | I'd like to read a poem | Can you compose
            a few verses | Make me a rhyme about the service
        """),
        held_out=phrasings("""
            Write me a poem about GPUs. | Do you know any poems? | How about a little poem? | Could
            you write some poetry?
        """),
    ),
    Fact(
        key="tour",
        answer="Here is a short tour. Penstock stands between your customers and your GPUs. "
        "Customers are tenants; they have projects, and projects have API keys. A tier "
        "says what a tenant may expect, quotas say what it may use, and a budget says "
        "what it may spend. Requests come in through the doors, wait in a fair queue in "
        "Redis and are claimed by workers that run vLLM. Tokens stream back at once. When "
        "something breaks, leases and attempts make sure that each request still ends "
        "exactly once. At the end, usage becomes entries in the ledger and the ledger "
        "becomes an invoice. To see it all, run make up.",
        key_phrases=("short tour",),
        questions=phrasings("""
            give me a tour | explain everything | give me a tour of Penstock | I am a newcomer,
            explain it all | tell me everything about Penstock | give me a long overview | explain
            Penstock in detail | a detailed introduction please | teach me Penstock | tell me all
            you know | a complete overview | explain the whole system to a beginner | long
            explanation of Penstock | describe Penstock at length | how does Penstock work | show me
            around | a detailed explanation of all of it | all there is to know | the complete tour
            | walk me through Penstock | everything about it | full introduction | long introduction
            to the system | how does it all work | whole picture | in depth explanation of Penstock
            | Show me around the whole system | I want a detailed explanation of all of Penstock |
            Tell me all there is to know about Penstock | Please give a newcomer the complete tour
        """),
        held_out=phrasings("""
            Give me a complete tour of the system. | Explain Penstock in detail, from start to end.
            | Tell me everything you know about Penstock. | I'm new here, explain all of it.
        """),
        topics=phrasings("how Penstock works"),
    ),
)
