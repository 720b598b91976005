"""The worker and what runs in it: vLLM, tokens, caches, adapters."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

ENGINE = (
    Fact(
        key="worker",
        answer="A worker is the process on a GPU node that holds the engine, claims requests and "
        "sends tokens back; it knows nothing of Django.",
        key_phrases=("knows nothing of Django",),
        questions=phrasings("""
            what is a worker | what does a worker do | what is a GPU worker | what runs on the GPU
            node | does the worker use Django | what is the job of a worker | which process
            generates the tokens | what is running on the GPU machines | what does a worker know |
            does a worker talk to the database | worker process | the process that generates | what
            is the worker's task | does a worker know Django | process on the GPU node | who
            produces the tokens | responsibility of a worker | program on the GPU machine | What
            task does a worker have | Which process does the generating | A GPU worker, is that the
            thing that generates | Does the worker import Django
        """),
        held_out=phrasings("""
            What does a worker do all day? | What is a worker in Penstock? | Which process holds the
            engine? | What is the worker process responsible for?
        """),
        topics=phrasings("a worker | workers | a GPU worker"),
    ),
    Fact(
        key="vllm",
        answer="vLLM is the inference engine that Penstock uses; it batches many requests on one "
        "GPU, and Penstock pins version 0.32.0.",
        key_phrases=("version 0.32.0",),
        questions=phrasings("""
            what is vLLM | which engine does Penstock use | what inference engine is used | which
            vLLM version is needed | what does vLLM do | do you use TensorRT or vLLM | which version
            of vLLM | what runs the model | what is the engine | is it based on vLLM | which LLM
            backend | why vLLM | inference backend | engine under the hood | what executes the model
            | required vLLM version | name of the engine | is vLLM used | engine software | which
            library serves the model | Which inference engine is under the hood | What version of
            vLLM do you require | Tell me what vLLM is | What software executes the model
        """),
        held_out=phrasings("""
            Which engine runs the models? | I don't know vLLM, what is it? | Which release of vLLM
            does Penstock need? | Do you use vLLM as engine?
        """),
        topics=phrasings("vLLM | the inference engine"),
    ),
    Fact(
        key="engine_proxy",
        answer="The EngineClient proxy is a thin layer between vLLM's serving objects and its "
        "engine: it sets adapter, priority, cache salt and request id, counts tokens and "
        "owns abort.",
        key_phrases=("thin layer between",),
        questions=phrasings("""
            what is the EngineClient proxy | what does the engine proxy do | what stands between the
            serving objects and the engine | how is vLLM wrapped | where is the cache salt set | who
            sets the priority in vLLM | why is there a proxy in the worker | how does the worker
            control the engine | engine client | how do you integrate vLLM | layer around the engine
            | what wraps vLLM | EngineClient | how do you hook into vLLM | proxy in the worker |
            where are adapter and priority set | who owns abort | For what purpose did you put a
            proxy around the engine | What lies between vLLM's serving code and the engine | In what
            way do you hook into vLLM | Which layer sets cache salt and request id
        """),
        held_out=phrasings("""
            Why is an EngineClient proxy between Penstock and vLLM? | Why do you need an engine
            proxy? | What sits between vLLM and its serving objects? | Which part sets the cache
            salt for the engine?
        """),
        topics=phrasings("the EngineClient proxy | the engine proxy"),
    ),
    Fact(
        key="sim_engine",
        answer="The simulated engine is a fake that streams made-up tokens with realistic "
        "timing; tests and demos use it where no GPU and no model is at hand.",
        key_phrases=("simulated engine is a fake",),
        questions=phrasings("""
            what is the simulated engine | can I run Penstock without a GPU | what is the sim engine
            | is there a fake engine | how do tests run without a model | how do I try it without a
            GPU | does it run on a laptop | what is sim_engine.py | do I need a GPU to develop |
            mock engine | testing without hardware | no GPU, can I try it | fake engine for tests |
            run without any model | pretend engine | engine without hardware | demo without a GPU |
            made-up tokens | I have no GPU, can I still try it | What's the simulated engine good
            for | How do your tests work with no model | Is there a mock of the engine
        """),
        held_out=phrasings("""
            When would I use the simulated engine? | Can I test without a GPU? | Do you have a fake
            engine? | How do I run a demo with no GPU?
        """),
        topics=phrasings("the simulated engine | the sim engine"),
    ),
    Fact(
        key="token",
        answer="A token is a piece of text, often a part of a word, that the model reads or "
        "writes in one step; usage and prices are counted in tokens.",
        key_phrases=("piece of text",),
        questions=phrasings("""
            what is a token | what are tokens | how long is a token | is a token a word | why do you
            count tokens | what does token mean | how many characters does a token have | what is
            tokenization | explain tokens | what unit does a model read | difference between a token
            and a word | what exactly are tokens | is a token the same as a word | pieces of text |
            unit of text for a model | how do models split text | definition of token | why not
            count words | What do you mean by a token | Are tokens the same as words | I keep
            hearing about tokens, what are they | What's the definition of a token
        """),
        held_out=phrasings("""
            When you say token, what do you mean? | How much text is one token? | What unit are
            prompts and prices counted in, and what is it? | Is every word a token?
        """),
        topics=phrasings("a token | tokens"),
    ),
    Fact(
        key="prefill",
        answer="Prefill is the first phase of a request: the model reads the whole prompt at "
        "once and fills the KV cache, and then the first token appears.",
        key_phrases=("reads the whole prompt at once",),
        questions=phrasings("""
            what is prefill | what does prefill mean | what is the first phase of generation | what
            happens before the first token | why does a long prompt take longer to start | what is
            the prompt phase | explain prefill | how is the prompt processed | what is done with the
            prompt first | prefill phase | reading the prompt | what happens in prefill | time
            before the first token, what goes on | processing of the prompt | initial phase | why is
            a long prompt slow to start | first phase | What goes on during prefill | In which phase
            is the prompt read | What precedes the first token | Why do long prompts delay the start
        """),
        held_out=phrasings("""
            I read the word prefill, what is it about? | What does the model do in the prefill
            phase? | What happens first, before any token comes? | How is a prompt read by the
            model?
        """),
        topics=phrasings("prefill | the prefill phase"),
    ),
    Fact(
        key="decode",
        answer="Decode is the second phase: the model writes one token per step for every "
        "running request until each is finished.",
        key_phrases=("Decode is the second phase",),
        questions=phrasings("""
            what is decode | what does decode mean | what is the second phase of generation | what
            comes after prefill | how are tokens written | how many tokens does a step make | what
            is the decode phase | explain decoding | what is an engine step | prefill versus decode
            | writing the output token by token | phase after prefill | how is the output written |
            generating phase | second phase | one token each step | what does decoding do | What is
            going on in the decode phase | What follows the prefill | How does the model write its
            output | I keep reading about decoding, what happens there
        """),
        held_out=phrasings("""
            What is the model busy with while it decodes? | What happens in the phase after prefill?
            | How are output tokens produced? | What is meant by the decode phase?
        """),
        topics=phrasings("decode | the decode phase | decoding"),
    ),
    Fact(
        key="ttft",
        answer="TTFT is the time to first token: how long a client waits from sending a request "
        "until the first token arrives. Each tier has a target for it.",
        key_phrases=("time to first token",),
        questions=phrasings("""
            what is TTFT | what does TTFT stand for | how long until the first token | what is the
            time to first token | how is latency measured | what latency does a tier promise | how
            quickly does an answer start | meaning of TTFT | how long do I wait for the answer to
            begin | which metric describes the start of the answer | first token latency | how soon
            does an answer begin | abbreviation TTFT | delay before the first token | waiting time
            for the first token | latency until the answer starts | TTFT target | first token time |
            start latency | What is the meaning of the abbreviation TTFT | How do you call the delay
            before the first token | I saw TTFT in a report, what is that
        """),
        held_out=phrasings("""
            What does TTFT mean? | How long does it take until the first token comes? | Which number
            tells me how fast the first token arrives? | Each tier promises a TTFT, what does that
            measure?
        """),
        topics=phrasings("TTFT | the time to first token"),
    ),
    Fact(
        key="itl",
        answer="ITL is the inter-token latency: the time between one token and the next of the "
        "same stream.",
        key_phrases=("inter-token latency",),
        questions=phrasings("""
            what is ITL | what does ITL stand for | what is inter-token latency | how smooth is the
            stream | time between two tokens | what is the gap between tokens | meaning of ITL | how
            quickly do tokens follow each other | which metric describes the pace of a stream |
            delay between tokens | TPOT | abbreviation ITL | time from one token to the next | pace
            of a stream | speed between tokens | how long between tokens | token to token time |
            stream smoothness | What do the letters ITL mean | How do you call the time from one
            token to the next | Someone mentioned ITL to me, what was that again | What measures the
            pace of a stream
        """),
        held_out=phrasings("""
            What does ITL mean? | How do you measure the time between tokens? | Which latency is
            measured from token to token? | What is the name for the gap between two tokens?
        """),
        topics=phrasings("ITL | inter token latency"),
    ),
    Fact(
        key="kv_cache",
        answer="The KV cache holds the keys and values of attention for all tokens read so far; "
        "it fills most of the GPU memory and limits how many requests run together.",
        key_phrases=("keys and values of attention",),
        questions=phrasings("""
            what is the KV cache | what does KV mean | what fills the GPU memory | why is GPU memory
            full | what limits the number of running requests | what are KV tokens | how much memory
            does a request need | explain the KV cache | what is stored for each token | key value
            cache | memory of attention | what takes up the GPU memory | keys and values | how many
            requests fit on a GPU | attention memory | K and V of tokens | memory per token | GPU
            memory use | cache of attention | What does the KV cache store | Which thing takes up
            most of the GPU's memory | Why can't more requests run at the same time on one GPU |
            What is KV short for
        """),
        held_out=phrasings("""
            Which data does the model keep in its KV cache? | What uses up all the memory of the
            GPU? | Why is the KV cache so large? | What does the KV cache limit?
        """),
        topics=phrasings("the KV cache | KV memory"),
    ),
    Fact(
        key="prefix_cache",
        answer="The prefix cache keeps the KV blocks of prompts seen before, so a prompt with "
        "the same beginning skips that part of prefill and its cached tokens cost less.",
        key_phrases=("same beginning skips",),
        questions=phrasings("""
            what is the prefix cache | what is prefix caching | what are cached tokens | how can I
            save tokens with a common system prompt | does Penstock cache prompts | what happens if
            two prompts begin the same | why is the second request faster | prompt caching | is a
            repeated prompt cheaper | reuse of a long system prompt | what does cached_tokens mean |
            is prompt caching supported | reuse the same system prompt | cached tokens in my usage |
            faster second call | common beginning of prompts | cached prefix | repeated system
            prompt | discount for cached prompts | Do you support prompt caching | Why was my second
            call with the same system prompt quicker | What's the benefit of the prefix cache | My
            usage lists cached_tokens, where do those come from
        """),
        held_out=phrasings("""
            How does prefix caching help me? | What are cached tokens on my bill? | Is a prompt with
            the same beginning faster? | Do you cache prefixes of prompts?
        """),
        topics=phrasings("the prefix cache | prefix caching | cached tokens"),
    ),
    Fact(
        key="cache_salt",
        answer="The cache salt is an HMAC of the tenant that goes into every prefix cache key, "
        "so one tenant can neither hit nor time another's cached prompts.",
        key_phrases=("HMAC of the tenant",),
        questions=phrasings("""
            what is the cache salt | why is the prefix cache salted | can a tenant hit another's
            prefix cache | what is the prefix cache salt | is the cache shared between tenants | how
            do you prevent cache timing attacks | what is cache_salt for | can somebody guess my
            prompt by timing | side channel in the cache | salt of the cache | is prompt caching
            safe between customers | why salt the cache | are cached prompts shared across tenants |
            measuring cache timing | timing attack on the prefix cache | salted cache | guess
            another tenant's prompt | separate caches for tenants | Why do you salt the cache |
            Could another tenant find out my prompts by measuring cache timing | What does the
            prefix cache salt do
        """),
        held_out=phrasings("""
            For what reason does the prefix cache get a salt? | Can someone find my prompts through
            cache timing? | Why does each tenant have a cache salt? | Does another tenant profit
            from my cached prompts?
        """),
        topics=phrasings("the cache salt | cache salting | cache_salt"),
    ),
    Fact(
        key="lora",
        answer="A LoRA adapter is a small set of extra weights that changes a base model; many "
        "adapters of many tenants can run on the same GPU at once.",
        key_phrases=("small set of extra weights",),
        questions=phrasings("""
            what is a LoRA adapter | what is LoRA | do you support LoRA | can I use my fine-tuned
            model | what is an adapter | can I run my own fine tune | how do I serve a fine-tuned
            model | what are adapters for | how many adapters can run on a GPU | multi-LoRA | do you
            support custom models | low rank adaptation | serve a fine-tuned model | is LoRA
            possible | what do adapters do | custom weights | my own fine-tune | LoRA weights |
            small weights on a base model | several adapters at once | Is LoRA supported | How would
            you explain an adapter | I have fine-tuned a model, can you serve it | What are LoRA
            weights
        """),
        held_out=phrasings("""
            People talk about LoRA adapters, what are those? | Can you serve my fine-tuned weights?
            | What are LoRA adapters good for? | Do you support LoRA adapters?
        """),
        topics=phrasings("LoRA | a LoRA adapter | adapters"),
    ),
    Fact(
        key="lora_loading",
        answer="Adapters are loaded while the service runs, on every replica and without a "
        "restart; their state is visible in the dashboard.",
        key_phrases=("without a restart",),
        questions=phrasings("""
            how do I add a LoRA adapter | how do I load an adapter | do I have to restart to add an
            adapter | how do I upload an adapter | is an adapter lost on restart | hot loading of
            adapters | on which replicas is an adapter loaded | how do I see whether my adapter is
            loaded | load LoRA at runtime | deploy an adapter | register a new adapter | add my fine
            tune without downtime | upload my LoRA | restart for a new adapter | check that an
            adapter was loaded | steps to add an adapter | load new weights at runtime | make my
            adapter available | adapter on all replicas | adapter state | Must I restart the workers
            for a new adapter | How is an adapter hot loaded | What are the steps to upload my LoRA
            | Where can I check that an adapter has been loaded
        """),
        held_out=phrasings("""
            How can I load a new adapter? | Does adding an adapter need a restart? | How does my
            adapter get onto the workers? | Where do I see if an adapter is loaded?
        """),
        topics=phrasings("adapter loading | hot loading of adapters"),
    ),
    Fact(
        key="lora_safety",
        answer="Uploaded adapters must be safetensors: they are checked in a jailed process that "
        "never unpickles anything, and then written anew.",
        key_phrases=("jailed process",),
        questions=phrasings("""
            is uploading an adapter safe | what file format must an adapter have | how are adapters
            checked | can I upload a pickle file | what if somebody uploads a malicious adapter |
            can an adapter contain a virus | which formats are accepted for adapters | how do you
            validate adapters | are pickles allowed | what is safetensors | malicious weights |
            security of uploads | attack through an uploaded adapter | format of LoRA weights |
            validate an upload | pickled weights | dangerous adapter file | upload formats | is
            pickle accepted | check of adapter files | Could an uploaded adapter attack the server |
            In what format do I upload LoRA weights | How do you validate an uploaded adapter | Do
            you accept pickled weights
        """),
        held_out=phrasings("""
            Is it dangerous to accept uploaded adapters? | Which file format do adapters need? | How
            do you check uploaded adapters? | What if an adapter file is malicious?
        """),
        topics=phrasings("adapter validation | safetensors"),
    ),
    Fact(
        key="cpu",
        answer="Yes, it also runs on a CPU: vLLM has a CPU build, an engine takes about 3.3 GB "
        "of memory there and starts in 15 to 35 seconds.",
        key_phrases=("15 to 35 seconds",),
        questions=phrasings("""
            does vLLM run on a CPU | can I run a real model on the CPU | how long does an engine
            take to start | how much memory does an engine need | is there a CPU mode | why does the
            engine start so slowly | CPU only machine | engine start time | run without CUDA | how
            much RAM do I need for the engine | does it work on an ordinary processor | start time
            of the engine | RAM of an engine | vLLM without CUDA | real engine on a processor | how
            long to boot the engine | memory footprint of the engine | only a CPU | engine startup |
            Can the real engine work on a CPU | How many seconds until the engine has started | How
            much RAM does one engine take | Will vLLM work on a machine without CUDA
        """),
        held_out=phrasings("""
            I only have a CPU, will the real engine start there? | How much memory does an engine
            use? | How long does the engine need to start? | Does it work without a graphics card on
            the CPU?
        """),
        topics=phrasings("the CPU build | running on a CPU"),
    ),
    Fact(
        key="tools_support",
        answer="Tool calls, structured output, logprobs and reasoning are vLLM's own: Penstock "
        "drives vLLM's serving objects, so they behave as in vLLM.",
        key_phrases=("behave as in vLLM",),
        questions=phrasings("""
            do you support tool calls | does function calling work | do you support structured
            output | can I get JSON output | are logprobs supported | does JSON mode work | can the
            model call functions | do you support JSON schema | response format | reasoning models |
            are tools supported | constrained decoding | guided generation | function calling |
            force JSON output | log probabilities | are tools possible | can I pass tools |
            structured outputs | JSON schema | OpenAI tools | Is function calling available | Can I
            force the output to be JSON | Does Penstock support tools | Can I get log probabilities
            of tokens
        """),
        held_out=phrasings("""
            Can the model use tools? | Is JSON mode supported? | Do you offer function calling? |
            Does structured output work with Penstock?
        """),
        topics=phrasings("tool calls | structured output | function calling"),
    ),
)
