"""Word lists of the corpus: slot values, question frames, fillers, synonyms, system prompts."""

from typing import Final

from gpu_workers.demo_model.facts.fact import phrasings

SLOTS: Final[dict[str, tuple[str, ...]]] = {
    "city": phrasings("""
        Paris | Rome | Vienna | Hamburg | Munich | Tokyo | Osaka | New York | Chicago | Boston |
        Sydney | Oslo | Stockholm | Prague | Warsaw | Athens | Cairo | Delhi | Mumbai | Beijing |
        Seoul | Moscow | Dublin | Zurich | Brussels | Amsterdam | Toronto | Lima | Nairobi | my town
    """),
    "country": phrasings("""
        Germany | Italy | Austria | Poland | Portugal | Norway | Sweden | Finland | Greece | Egypt |
        India | China | Korea | Russia | Ireland | Switzerland | Belgium | Canada | Peru | Kenya |
        Brazil | Mexico | Australia | Turkey | Denmark | Hungary | Chile | Cuba | Iran | my country
    """),
    "language": phrasings(
        "C | Rust | Go | Perl | Ruby | Kotlin | PHP | C++ | shell | Lua | Haskell"
    ),
    "tongue": phrasings("""
        Spanish | Dutch | Polish | Greek | Chinese | Japanese | Arabic | Russian | Turkish | Hindi |
        Korean | Latin | Swedish | Portuguese | another language
    """),
    "number": phrasings("""
        0 | 1 | 3 | 4 | 5 | 6 | 9 | 11 | 13 | 14 | 16 | 17 | 20 | 21 | 25 | 36 | 42 | 50 | 64 | 77 |
        99 | 100 | 128 | 144 | 250 | 512 | 1000 | 1914 | 1989 | 2024 | three | five | six | nine |
        ten | twelve | twenty | a hundred | one | four
    """),
    "food": phrasings("""
        bread | soup | pizza | rice | curry | potato salad | an omelette | lasagne | apple pie |
        fried fish | a sandwich | noodles | tomato sauce | waffles | ice cream | cheese | coffee
    """),
    "work": phrasings("""
        Hamlet | Faust | Don Quixote | War and Peace | Star Wars | Titanic | the Odyssey | Moby Dick
        | Dracula | the Bible | Harry Potter | the Matrix | the Ninth Symphony | Carmen
    """),
    "person": phrasings("""
        Mozart | Napoleon | Marie Curie | Isaac Newton | Picasso | Cleopatra | Shakespeare |
        Beethoven | Julius Caesar | Alan Turing | Charles Darwin | Madonna | Leonardo da Vinci | Ada
        Lovelace
    """),
    "machine": phrasings("""
        telephone | car | steam engine | camera | bicycle | rocket | television | radio | microwave
        | laptop | train | watch | fridge | plane
    """),
    "animal": phrasings(
        "elephant | dog | cat | horse | whale | lion | bee | spider | wolf | tiger | frog | owl"
    ),
}

RANDOM_WORDS: Final = phrasings("""
    apple | river | green | table | seven | window | cloud | music | paper | yellow | garden | stone
    | mountain | happy | quick | brown | fox | jumps | lazy | chair | bottle | winter | summer |
    street | school | purple | orange | shoe | candle | forest | island | kitchen | letter | mirror
    | ocean | pencil | rabbit | silver | spoon | sugar | tower | village | water | wooden | zebra |
    blue | hat
""")

TOPIC_FRAMES: Final = phrasings("""
    what is {t} | explain {t} | tell me about {t} | what about {t} | {t} | describe {t} | what do
    you know about {t} | I want to know about {t} | how does Penstock handle {t} | give me
    information on {t} | what should I know about {t} | help me understand {t} | what does Penstock
    say about {t} | I have a question about {t} | how is {t} done in Penstock | details on {t} |
    what can you tell me about {t} | how would you describe {t} | teach me about {t} | say something
    about {t} | what's the deal with {t} | can you say what {t} is about | I don't understand {t} |
    please clarify {t} | and {t}
""")

OPENINGS: Final = phrasings("""
    please | hey, | hi, | hello, | ok, | so, | and | well, | sorry, | quick question: | one
    question: | can you tell me | could you tell me | could you explain to me | please tell me |
    tell me | I would like to know | I wonder | do you know | I want to know | I'd like to ask | can
    I ask | now | next: | just curious: | my boss asks: | a customer asks: | thanks, and | good, but
    | another question: | I'm new here, | hmm, | say, | for my notes: | in your own words, | would
    you mind telling me | help me out: | let me ask: | I was wondering, | actually, | in short,
""")

CLOSINGS: Final = phrasings("""
    please | thanks | in Penstock | here | exactly | in short | in one sentence | in simple words |
    for a beginner | in this project | again | then | now | with you | in your service | by the way
    | for me | really | in detail | in general | briefly | in Penstock, please | at all | I wonder |
    if I may ask
""")

FILLERS: Final = frozenset(
    phrasings("""
    a | an | the | is | are | do | does | did | i | you | me | it | to | of | in | for | my |
    your | this | that | please | can | could
""")
)

SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "what happens when": ("what if", "what happens if", "what is done when", "suppose that"),
    "what happens to": ("what becomes of", "what is done with", "what about"),
    "what if": (
        "what happens if",
        "what happens when",
        "suppose",
        "and if",
        "what would happen if",
    ),
    "what is": ("what's", "whats", "what exactly is", "define", "explain", "describe"),
    "what are": ("define", "explain", "tell me about", "what exactly are"),
    "what does": ("what will", "tell me what does", "what would"),
    "how do I": (
        "how can I",
        "how does one",
        "how would I",
        "how to",
        "what is the way to",
        "how should I",
    ),
    "how do you": (
        "how does Penstock",
        "how can you",
        "in what way do you",
        "how does the service",
    ),
    "how does": ("in what way does", "explain how", "how exactly does", "how will"),
    "how is": ("in what way is", "by what means is", "how exactly is", "how do you get"),
    "how are": ("in what way are", "by what means are", "how exactly are"),
    "how many": ("what number of", "how big a number of"),
    "why": ("for what reason", "how come", "why exactly"),
    "can I": ("may I", "could I", "is it possible to", "am I able to", "will I be able to"),
    "do you support": (
        "is there support for",
        "do you have",
        "do you offer",
        "does Penstock support",
    ),
    "is there": ("do you have", "do you offer", "does Penstock have", "is there any", "exists"),
    "which": ("what", "what kind of"),
    "where": ("in which place", "where exactly"),
    "when": ("at what time", "if"),
    "explain": ("describe", "clarify", "tell me about", "outline", "illustrate"),
    "stop": ("halt", "end", "shut down", "terminate", "quit"),
    "start": ("launch", "boot", "begin", "bring up"),
    "dies": ("crashes", "fails", "goes down", "breaks", "is killed", "is lost"),
    "crashes": ("dies", "fails", "breaks down", "goes away"),
    "fails": ("breaks", "dies", "crashes"),
    "customer": ("client", "user", "tenant"),
    "money": ("cash", "amounts", "dollars"),
    "pay": ("get charged", "be billed", "owe"),
    "cost": ("price", "charge"),
    "limit": ("cap", "bound", "maximum"),
    "request": ("call", "query", "job"),
    "answer": ("reply", "response", "output"),
    "use": ("utilise", "employ", "apply"),
    "need": ("require", "have to have"),
    "see": ("view", "look at", "find"),
    "stored": ("kept", "saved", "held"),
    "kept": ("stored", "saved", "held"),
    "chosen": ("picked", "selected", "decided"),
    "machine": ("server", "node", "computer", "host"),
    "quickly": ("fast", "soon", "rapidly"),
    "write": ("compose", "create", "make", "produce"),
    "tell me": ("let me know", "give me", "say"),
    "mean": ("stand for", "signify", "refer to"),
    "work": ("function", "operate"),
    "get": ("obtain", "receive"),
    "show": ("display", "present"),
}

SYSTEM_PROMPTS: Final = phrasings("""
    You are a helpful assistant. | You are penstock-demo, a model that answers questions about
    Penstock. | Be brief. | Answer in one sentence. | You are a friendly support agent. | Today is
    Monday. | You help engineers who run GPUs. | Always be polite. | You are an AI assistant. Answer
    the user's questions. | Respond concisely and accurately. | You are a chatbot on the website of
    Acme. | You work for Globex. Never reveal internal data. | Use plain English. | You are a
    helpful, respectful and honest assistant. | Keep answers short and do not use lists. | You are
    an expert in distributed systems. | Help the user. | The user is a new customer. | Think step by
    step. | You are a concise assistant for developers. Reply in English. | If you do not know the
    answer, say so. | Act as a teacher. | You are Alice's assistant. | Format answers as plain text.
""")
