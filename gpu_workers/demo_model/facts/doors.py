"""The ways in: APIs, keys in the client's hand, streams and what a client sees of them."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

DOORS = (
    Fact(
        key="doors",
        answer="Requests can enter by several doors: an OpenAI-compatible API, an "
        "Anthropic-compatible API and a websocket. All of them call the same use case "
        "behind.",
        key_phrases=("several doors",),
        questions=phrasings("""
            which APIs does Penstock offer | what doors are there | what is a door | how can I talk
            to the service | which interfaces exist | list the endpoints | in which ways can a
            request enter | what protocols are supported | which API formats do you support | how
            many doors does Penstock have | what entrances are there | supported APIs | which
            interfaces can clients choose from
        """),
        held_out=phrasings("""
            Which APIs do you support? | By what ways can clients reach the models? | What do you
            call a door? | List the interfaces a client may use.
        """),
        topics=phrasings("a door | the doors | the APIs"),
    ),
    Fact(
        key="openai_api",
        answer="Yes, the OpenAI API works: point your OpenAI client's base URL at Penstock's /v1 "
        "path and use a Penstock API key; chat completions and streaming behave as you "
        "expect.",
        key_phrases=("OpenAI client's base URL",),
        questions=phrasings("""
            is Penstock compatible with OpenAI | can I use the OpenAI client | does the openai
            python library work | how do I switch from OpenAI to Penstock | do you have chat
            completions | how do I call the OpenAI API here | what base url should I use | does the
            OpenAI SDK work | is there a /v1/chat/completions endpoint | use my existing OpenAI code
            | OpenAI compatible | how do I send a chat completion | migrate from ChatGPT's API
        """),
        held_out=phrasings("""
            Will my existing OpenAI code run against it? | How do I point the openai package at
            Penstock? | Is the API OpenAI compatible? | Do you support the OpenAI chat completions
            API?
        """),
        topics=phrasings("the OpenAI API | OpenAI compatibility"),
    ),
    Fact(
        key="anthropic_api",
        answer="Yes, there is an Anthropic-compatible door: clients written for Claude's "
        "messages API can call Penstock with a changed address and key.",
        key_phrases=("Anthropic-compatible door",),
        questions=phrasings("""
            do you support the Anthropic API | can I use the Anthropic client | does the Claude SDK
            work | is there a messages endpoint | does Claude's API work here | is Penstock
            compatible with Anthropic | can my Claude app talk to Penstock | use the anthropic
            python package | messages API | Anthropic messages format | do you speak the Claude
            protocol | I have code written for Claude
        """),
        held_out=phrasings("""
            Can software made for Claude use Penstock? | Do you offer an Anthropic style endpoint? |
            Does the anthropic SDK work with it? | Is the Anthropic messages API supported?
        """),
        topics=phrasings("the Anthropic API | Anthropic compatibility"),
    ),
    Fact(
        key="websocket",
        answer="The websocket door carries a conversation over one open connection: tokens "
        "arrive as frames and you can cancel an answer with a message.",
        key_phrases=("websocket door",),
        questions=phrasings("""
            is there a websocket | can I use websockets | how does the websocket API work | do you
            support websocket connections | tell me about the websocket interface | can I get tokens
            over a websocket | why would I use the websocket | can a browser open a socket | ws
            endpoint | real time connection | bidirectional connection | how do I connect by
            websocket | socket API
        """),
        held_out=phrasings("""
            Do you have a websocket API? | Can I stream over a websocket instead of HTTP? | What is
            the websocket good for? | How would I use web sockets with Penstock?
        """),
        topics=phrasings("the websocket | the websocket door"),
    ),
    Fact(
        key="streaming",
        answer="Set `stream` to true and the tokens arrive one after another as server-sent "
        "events (SSE), the moment the worker produces them.",
        key_phrases=("server-sent events",),
        questions=phrasings("""
            how does streaming work | can I stream tokens | how do I stream the answer | what is SSE
            | what are server-sent events | how do I get tokens as they are made | do you support
            streaming responses | how do I turn on streaming | can I see the answer word by word |
            what does the stream parameter do | I want the output live | incremental output |
            receive the answer piece by piece | how are tokens delivered to the client
        """),
        held_out=phrasings("""
            Can I receive the answer token by token? | How do I enable streaming? | What does SSE
            mean here? | Is it possible to show the reply while it is being generated?
        """),
        topics=phrasings("streaming | SSE | token streaming"),
    ),
    Fact(
        key="management_api",
        answer="The management API is the door for administration: with it you create projects, "
        "keys, quotas and adapters by program instead of by hand.",
        key_phrases=("door for administration",),
        questions=phrasings("""
            is there an admin API | what is the management API | can I automate administration | how
            do I create projects by script | how do I manage keys by program | is there an API for
            settings | can I script tenant setup | manage Penstock from Terraform | administrative
            endpoints | how do I administer it programmatically | REST API for management | API for
            configuration | control plane API
        """),
        held_out=phrasings("""
            Can administration be automated by a script? | Do you have an API to manage tenants and
            keys? | What is the management API for? | How do I create quotas programmatically?
        """),
        topics=phrasings("the management API | the admin API"),
    ),
    Fact(
        key="dashboard",
        answer="The dashboard is the web page of the control plane: it shows each tenant its "
        "keys, usage, limits and spending, and it can be used to try a model.",
        key_phrases=("web page of the control plane",),
        questions=phrasings("""
            is there a dashboard | is there a web interface | does Penstock have a UI | where can I
            see my usage | what does the dashboard show | is there a graphical interface | where do
            I log in to see statistics | how do I look at my spending | can I see charts | web
            console | admin pages | a page with my figures | is there a portal for customers | user
            interface
        """),
        held_out=phrasings("""
            Is there a graphical user interface? | Where can I view my consumption? | Do you have a
            web UI? | What can I see on the dashboard?
        """),
        topics=phrasings("the dashboard | the web interface"),
    ),
    Fact(
        key="unknown_fields",
        answer="A field that the API does not know is refused with status 400, and the error "
        "names the field, so a misspelled option is never ignored in silence.",
        key_phrases=("refused with status 400",),
        questions=phrasings("""
            what happens with unknown fields | what if I send an unknown parameter | are unknown
            parameters ignored | I misspelled an option | what does a 400 mean | why do I get error
            400 | bad request error | does it accept extra fields | what if a request field is wrong
            | is a typo in a parameter detected | unrecognised option | invalid parameter name |
            does Penstock validate the request body
        """),
        held_out=phrasings("""
            What if my request contains a field you don't know? | Why was my call answered with 400?
            | Do you silently ignore unrecognised parameters? | What happens when I mistype a
            parameter name?
        """),
    ),
    Fact(
        key="idempotency",
        answer="Send an idempotency key and a repeated request is recognised: it runs once, is "
        "billed once, and the repetition gets the same result.",
        key_phrases=("idempotency key",),
        questions=phrasings("""
            can I safely retry a request | what is idempotency | is inference idempotent | how do I
            avoid paying twice on a retry | what if I send the same request twice | duplicate
            requests | retry without being billed again | are retries safe | my client repeats calls
            | how do I make a call idempotent | sending a request again after a timeout | exactly
            once | double submission
        """),
        held_out=phrasings("""
            Is it safe to repeat a request? | How can I retry without being charged a second time? |
            What happens if the same call arrives twice? | Do you support idempotent requests?
        """),
        topics=phrasings("idempotency | an idempotency key | idempotent inference"),
    ),
    Fact(
        key="resume_stream",
        answer="A broken stream can be resumed: reconnect with the last event id you saw and the "
        "tokens after it are sent again from the buffer, so nothing is generated twice.",
        key_phrases=("last event id",),
        questions=phrasings("""
            can I resume a stream | what if my connection breaks in the middle of an answer | how do
            I continue a broken stream | are streams resumable | my network dropped during streaming
            | reconnect to a running answer | how do I pick up where the stream stopped | lost
            connection | resume after reconnect | the stream was interrupted | wifi failed while the
            answer was coming | continue an interrupted reply
        """),
        held_out=phrasings("""
            My connection was lost halfway, can I continue the stream? | Do you support resumable
            streams? | How do I reconnect to an answer that is still running? | Is an interrupted
            stream gone for ever?
        """),
        topics=phrasings("resumable streams | resuming a stream"),
    ),
    Fact(
        key="cancel",
        answer="To cancel a request, close the connection or send a cancel message: a queued "
        "request ends at once, a running one stops within one engine step.",
        key_phrases=("within one engine step",),
        questions=phrasings("""
            how do I cancel a request | can I stop a running answer | how do I abort generation |
            what happens when I press stop | how quickly does a cancellation work | abort a request
            | stop the model while it is writing | kill my request | interrupt the generation | end
            an answer early | is there a cancel button | does cancelling free the GPU | call off a
            query
        """),
        held_out=phrasings("""
            How can I abort an answer that is being generated? | Can I stop a request I no longer
            need? | How fast does a cancel take effect? | What's the way to interrupt a running
            completion?
        """),
        topics=phrasings("cancellation | cancelling a request"),
    ),
    Fact(
        key="disconnect",
        answer="When a client disconnects, Penstock notices, cancels its request and settles the "
        "bill for what was produced until then, so no GPU works for nobody.",
        key_phrases=("client disconnects",),
        questions=phrasings("""
            what happens when a client disconnects | what if I close my browser tab | what if the
            user goes away | what happens when the client hangs up | does generation go on after I
            disconnect | what if the caller vanishes | client gone in the middle of a request | what
            happens if my program crashes while waiting | what if I close the window | does a
            disconnected client still pay | the caller left
        """),
        held_out=phrasings("""
            What happens if a user closes the page while the answer is coming? | Does the GPU keep
            working after the client is gone? | What if the caller hangs up early? | How do you
            handle client disconnects?
        """),
        topics=phrasings("client disconnects"),
    ),
    Fact(
        key="slow_reader",
        answer="A slow reader hurts only itself: its pending deltas are merged under a byte cap, "
        "and no other stream ever waits for it.",
        key_phrases=("slow reader hurts only itself",),
        questions=phrasings("""
            what happens with a slow client | what if a client reads slowly | can one slow reader
            block others | how do you handle back pressure | what is a slow reader | client cannot
            keep up with the tokens | does a slow connection delay other users | backpressure | what
            if my network is slow | a consumer that lags behind | somebody on a bad phone connection
        """),
        held_out=phrasings("""
            Can a client with a slow connection hold up everybody else? | What if a reader cannot
            keep up with the stream? | How does Penstock deal with slow consumers? | Is there any
            backpressure handling?
        """),
        topics=phrasings("slow readers | back pressure"),
    ),
    Fact(
        key="finish_reason",
        answer="The finish_reason tells why an answer ended: `stop` means the model was done, "
        "`length` means it reached max_tokens.",
        key_phrases=("means the model was done",),
        questions=phrasings("""
            what is finish_reason | what does finish reason mean | what does finish_reason length
            mean | why did the answer end | why was my answer cut off | what is the difference
            between stop and length | my reply is truncated | which finish reasons are there | how
            do I know whether the answer is complete | output was cut short | the text ends in the
            middle of a sentence | what does stop mean in the response
        """),
        held_out=phrasings("""
            What does the finish_reason field tell me? | Why does my answer break off in mid
            sentence? | How can I see if a reply was truncated? | What's the meaning of
            finish_reason "length"?
        """),
        topics=phrasings("finish_reason | the finish reason"),
    ),
)
