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
            does a worker talk to the database | worker process
        """),
        held_out=phrasings("""
            What task does a worker have? | Which process does the generating? | A GPU worker, is
            that the thing that generates? | Does the worker import Django?
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
            backend | why vLLM | inference backend
        """),
        held_out=phrasings("""
            Which inference engine is under the hood? | What version of vLLM do you require? | Tell
            me what vLLM is. | What software executes the model?
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
            control the engine | engine client | how do you integrate vLLM
        """),
        held_out=phrasings("""
            For what purpose did you put a proxy around the engine? | What lies between vLLM's
            serving code and the engine? | In what way do you hook into vLLM? | Which layer sets
            cache salt and request id?
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
            mock engine | testing without hardware
        """),
        held_out=phrasings("""
            I have no GPU, can I still try it? | What's the simulated engine good for? | How do your
            tests work with no model? | Is there a mock of the engine?
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
            and a word
        """),
        held_out=phrasings("""
            What do you mean by a token? | Are tokens the same as words? | I keep hearing about
            tokens, what are they? | What's the definition of a token?
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
            prompt first | prefill phase
        """),
        held_out=phrasings("""
            What goes on during prefill? | In which phase is the prompt read? | What precedes the
            first token? | Why do long prompts delay the start?
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
        """),
        held_out=phrasings("""
            What is going on in the decode phase? | What follows the prefill? | How does the model
            write its output? | I keep reading about decoding, what happens there?
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
            begin | which metric describes the start of the answer | first token latency
        """),
        held_out=phrasings("""
            What is the meaning of the abbreviation TTFT? | How do you call the delay before the
            first token? | How soon does an answer begin? | I saw TTFT in a report, what is that?
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
            delay between tokens | TPOT
        """),
        held_out=phrasings("""
            What do the letters ITL mean? | How do you call the time from one token to the next? |
            Someone mentioned ITL to me, what was that again? | What measures the pace of a stream?
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
            cache | memory of attention
        """),
        held_out=phrasings("""
            What does the KV cache store? | Which thing takes up most of the GPU's memory? | Why
            can't more requests run at the same time on one GPU? | What is KV short for?
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
            repeated prompt cheaper | reuse of a long system prompt | what does cached_tokens mean
        """),
        held_out=phrasings("""
            Do you support prompt caching? | Why was my second call with the same system prompt
            quicker? | What's the benefit of the prefix cache? | My usage lists cached_tokens, where
            do those come from?
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
            safe between customers
        """),
        held_out=phrasings("""
            Why do you salt the cache? | Could another tenant find out my prompts by measuring cache
            timing? | What does the prefix cache salt do? | Are cached prompts shared across
            tenants?
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
            support custom models | low rank adaptation
        """),
        held_out=phrasings("""
            Is LoRA supported? | How would you explain an adapter? | I have fine-tuned a model, can
            you serve it? | What are LoRA weights?
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
            tune without downtime
        """),
        held_out=phrasings("""
            Must I restart the workers for a new adapter? | How is an adapter hot loaded? | What are
            the steps to upload my LoRA? | Where can I check that an adapter has been loaded?
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
            security of uploads
        """),
        held_out=phrasings("""
            Could an uploaded adapter attack the server? | In what format do I upload LoRA weights?
            | How do you validate an uploaded adapter? | Do you accept pickled weights?
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
            much RAM do I need for the engine | does it work on an ordinary processor
        """),
        held_out=phrasings("""
            Can the real engine work on a CPU? | How many seconds until the engine has started? |
            How much RAM does one engine take? | Will vLLM work on a machine without CUDA?
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
            are tools supported | constrained decoding | guided generation
        """),
        held_out=phrasings("""
            Is function calling available? | Can I force the output to be JSON? | Does Penstock
            support tools? | Can I get log probabilities of tokens?
        """),
        topics=phrasings("tool calls | structured output | function calling"),
    ),
)
