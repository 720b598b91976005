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
            interfaces can clients choose from | which API can I use | what ways in are there | how
            do clients get in | which interfaces do you support | by which protocol do I reach the
            models | what do you mean by a door | how can clients reach a model | name the APIs |
            entry points | what endpoints can a client call | how to access the models | which doors
            are open | Which APIs do you support | By what ways can clients reach the models | What
            do you call a door | List the interfaces a client may use
        """),
        held_out=phrasings("""
            Through which interfaces can I use the models? | What is called a door in Penstock? |
            How many different APIs can clients talk to? | Please list all the doors.
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
            | OpenAI compatible | how do I send a chat completion | migrate from ChatGPT's API |
            does OpenAI code run here | is the API like OpenAI's | can I point the openai package
            here | will OpenAI clients work | existing OpenAI apps | do I have to change my OpenAI
            code | how do I set the base url of the client | chat completions endpoint | is OpenAI's
            protocol supported | using openai with Penstock | does it speak the OpenAI protocol |
            drop-in replacement for OpenAI | Will my existing OpenAI code run against it | How do I
            point the openai package at Penstock | Is the API OpenAI compatible | Do you support the
            OpenAI chat completions API
        """),
        held_out=phrasings("""
            We use the OpenAI Python client, can we keep it? | Do I just change the base URL of my
            OpenAI client? | Can I talk to Penstock with the OpenAI SDK? | How compatible are you
            with OpenAI?
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
            protocol | I have code written for Claude | is there something for Claude users | does
            software for Claude work | Anthropic style API | can Claude clients connect | is the
            Anthropic SDK supported | does it offer the messages API | can I point the anthropic
            client here | Claude compatible endpoint | calling it with Anthropic's library | my
            program uses Claude | do Anthropic clients work | is Claude's format understood | Can
            software made for Claude use Penstock | Do you offer an Anthropic style endpoint | Does
            the anthropic SDK work with it | Is the Anthropic messages API supported
        """),
        held_out=phrasings("""
            Our app speaks to Claude, can it speak to you? | Is there an endpoint in the Anthropic
            format? | Could I use Anthropic's SDK with Penstock? | We wrote our client for
            Anthropic, will that be a problem?
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
            websocket | socket API | do you offer a web socket | does it have websockets | what's
            the websocket for | streaming over a websocket | use a socket instead of HTTP | how do I
            talk over a websocket | what does the websocket carry | open connection to the service |
            websocket or HTTP | persistent connection | web socket support | how would a browser use
            the websocket | Do you have a websocket API | Can I stream over a websocket instead of
            HTTP | What is the websocket good for | How would I use web sockets with Penstock
        """),
        held_out=phrasings("""
            May I connect with a websocket? | Tell me how the websocket interface behaves. | Is a
            websocket connection possible from the browser? | Why should I choose the websocket over
            plain HTTP?
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
            receive the answer piece by piece | how are tokens delivered to the client | can I get
            the answer token by token | how to enable streaming | show the reply while it is
            generated | receive tokens immediately | stream responses | is streaming possible | how
            do I switch streaming on | what are SSE events | can the output come gradually | get
            partial output | see the text as it is being written | does the reply come in pieces |
            Can I receive the answer token by token | How do I enable streaming | What does SSE mean
            here | Is it possible to show the reply while it is being generated
        """),
        held_out=phrasings("""
            How do I make the tokens stream? | Will I see tokens while they are being generated? |
            How can my client receive a streamed answer? | Must I wait for the complete reply or
            will it stream?
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
            configuration | control plane API | automate administration | can I create tenants by
            API | how to create quotas by program | an API for managing tenants and keys | can a
            script administer Penstock | management endpoints | what can I do with the management
            API | programmatic administration | create keys automatically | is there an API to
            administer the service | admin work by script | how do I automate the setup of projects
            | Can administration be automated by a script | Do you have an API to manage tenants and
            keys | What is the management API for | How do I create quotas programmatically
        """),
        held_out=phrasings("""
            Can I manage projects and keys through an API? | Is there some API for administrators? |
            I want to create keys from a script, what do I use? | Which API do I use for
            administration?
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
            interface | do you have a UI | can I see my consumption somewhere | where do I view my
            usage | is there a web page for customers | what is on the dashboard | graphical user
            interface | show me the web UI | where do I check how much I used | how do I open the
            console | is there a website for my tenant | look at usage in the browser | GUI | Is
            there a graphical user interface | Where can I view my consumption | Do you have a web
            UI | What can I see on the dashboard
        """),
        held_out=phrasings("""
            Where can a customer look at usage in the browser? | Is there some kind of web console?
            | Do you ship a web interface with it? | What will I find on the dashboard page?
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
            does Penstock validate the request body | what if a field is unknown | are unrecognised
            parameters ignored | my request was answered with 400 | why status 400 | I sent a
            parameter you don't know | a mistyped parameter name | request has an extra field | does
            a misspelling go unnoticed | what about unsupported parameters | HTTP 400 | are bad
            fields rejected | strict validation of fields | What if my request contains a field you
            don't know | Why was my call answered with 400 | Do you silently ignore unrecognised
            parameters | What happens when I mistype a parameter name
        """),
        held_out=phrasings("""
            I sent a wrong parameter name, what will happen? | How does the API react to parameters
            it doesn't know? | My request failed with a 400, why? | Do you reject unknown fields?
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
            once | double submission | is repeating a request safe | can I retry without paying
            twice | the same request arrives twice | how do I prevent double charges on retry | are
            requests idempotent | what if my client sends a call two times | safe retries | resend a
            request | is a duplicate billed | repeat a call after a timeout | avoid running a
            request twice | same key same result | Is it safe to repeat a request | How can I retry
            without being charged a second time | What happens if the same call arrives twice | Do
            you support idempotent requests
        """),
        held_out=phrasings("""
            Can a retry make me pay twice? | I want to repeat a request safely, how? | Are
            duplicates of a request detected? | How does idempotency work?
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
            answer was coming | continue an interrupted reply | continue a stream after connection
            loss | my connection was cut, is the answer lost | reconnect to a stream | can a stream
            be continued | I lost the connection halfway | pick up an interrupted stream | is a
            broken stream gone | get the rest of an answer after a disconnect | the stream broke
            off, can I go on | how do I resume | rejoin a running answer | tokens missed while
            offline | My connection was lost halfway, can I continue the stream | Do you support
            resumable streams | How do I reconnect to an answer that is still running | Is an
            interrupted stream gone for ever
        """),
        held_out=phrasings("""
            The connection dropped, can I get the rest of the stream? | How can a client resume
            after losing the connection? | What do I do if my stream is interrupted? | Can I
            reconnect and keep reading the same answer?
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
            query | how can I abort | stop an answer that is being generated | I no longer need my
            request | how fast is a cancel | interrupt a running completion | can I end a generation
            early | cancel a completion | stop generating | what's the way to cancel | withdraw a
            request | break off the answer | how long until a cancel takes effect | How can I abort
            an answer that is being generated | Can I stop a request I no longer need | How fast
            does a cancel take effect | What's the way to interrupt a running completion
        """),
        held_out=phrasings("""
            How do I tell it to stop generating? | Is there a way to cancel something I sent? |
            What's needed to abort my request? | If I cancel, how soon does it stop?
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
            disconnected client still pay | the caller left | user closes the page | does the GPU
            keep working when the client is gone | caller hangs up early | how are disconnects
            handled | client closes the connection | what if someone leaves while the answer is
            coming | the browser was closed | the user left before the end | my client died during a
            request | does an abandoned request go on | nobody is listening any more | client went
            away | What happens if a user closes the page while the answer is coming | Does the GPU
            keep working after the client is gone | What if the caller hangs up early | How do you
            handle client disconnects
        """),
        held_out=phrasings("""
            What happens to a request once its client is gone? | I closed my laptop during an
            answer, what happens? | Does it continue generating when the client disconnects? | What
            do you do if the client drops the connection?
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
            | how are slow consumers handled | can a slow client hold up others | a reader that
            cannot keep up | what about slow connections | someone reads the stream too slowly |
            will a slow consumer block the rest | client with little bandwidth | does a lagging
            reader matter | stream consumer too slow | what if a reader stalls | slow clients | flow
            control towards clients | Can a client with a slow connection hold up everybody else |
            What if a reader cannot keep up with the stream | How does Penstock deal with slow
            consumers | Is there any backpressure handling
        """),
        held_out=phrasings("""
            Does one slow client slow down all the others? | What happens with readers that are too
            slow? | How are slow clients treated? | My phone reads very slowly, is that a problem
            for others?
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
            middle of a sentence | what does stop mean in the response | what is the meaning of
            finish_reason | why does the reply break off | how can I see that a reply was truncated
            | the answer is incomplete, why | finish_reason stop | finish_reason length | what tells
            me the answer was complete | my answer breaks off in the middle | how do I recognise a
            truncated answer | the finish_reason field | was the output shortened | reason for the
            end of an answer | What does the finish_reason field tell me | Why does my answer break
            off in mid sentence | How can I see if a reply was truncated | What's the meaning of
            finish_reason "length"
        """),
        held_out=phrasings("""
            What values can finish_reason have? | How do I find out why the answer stopped? | Was my
            answer cut off because of length? | My answer ended too early, where do I see the
            reason?
        """),
        topics=phrasings("finish_reason | the finish reason"),
    ),
)
