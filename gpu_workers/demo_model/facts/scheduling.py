"""Who is served next: queues, fairness and headroom."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

SCHEDULING = (
    Fact(
        key="vtc",
        answer="VTC is the virtual token counter: each tenant's counter grows with the tokens it "
        "gets, weighted by its share, and the tenant with the smallest counter is served "
        "next.",
        key_phrases=("VTC is the virtual token counter",),
        questions=phrasings("""
            what is VTC | what does VTC stand for | how does VTC work | what is the virtual token
            counter | how is fairness computed | which tenant is served next | what counter decides
            who goes next | explain the fairness algorithm | how do you choose between tenants |
            what is the fair scheduling algorithm | weighted fair queueing | how is the next tenant
            chosen | VTC fairness | by what rule is the next tenant selected | what do the letters
            VTC mean | which algorithm makes it fair | VTC in the docs | virtual counter of tokens |
            smallest counter first | who goes next among tenants | selection of the next tenant |
            explain the counter of each tenant | fair queueing algorithm | VTC meaning | rule for
            picking tenants | I read about VTC in your docs, what is it | Which algorithm makes
            scheduling fair
        """),
        held_out=phrasings("""
            How does the virtual token counter decide? | Somebody told me the scheduler uses VTC,
            how does that go? | Which counter decides which tenant is next? | What's the idea behind
            VTC?
        """),
        topics=phrasings("VTC | the virtual token counter | the fairness algorithm"),
    ),
    Fact(
        key="fairness",
        answer="Fairness means that two tenants who both have work waiting get service in "
        "proportion to their shares, however many requests one of them sends.",
        key_phrases=("in proportion to their shares",),
        questions=phrasings("""
            what does fairness mean | is Penstock fair | what if one tenant floods the service | can
            one customer take all GPUs | what about a noisy neighbour | what happens when a tenant
            sends thousands of requests | how do you stop one tenant from hogging everything | are
            resources shared fairly | does a heavy user slow me down | another customer is flooding
            the service | greedy tenant | fair sharing | noisy neighbour | can one tenant monopolise
            the GPUs | what's meant by fairness | a customer sends a flood of requests | is capacity
            divided fairly | does a flooder hurt me | can somebody ruin my latency | how are GPUs
            shared fairly | one tenant hogs the machine | equal treatment of tenants | protect me
            from heavy users | fair share | Can a noisy neighbour ruin my latency | What is meant by
            fairness | What if some customer sends a flood of requests | Can a single tenant
            monopolise the GPUs
        """),
        held_out=phrasings("""
            What if another tenant floods the system? | How do you keep a noisy neighbour in check?
            | Is every tenant treated fairly? | Can a heavy tenant take everything?
        """),
        topics=phrasings("fairness | noisy neighbours"),
    ),
    Fact(
        key="first_come",
        answer="First come, first served has no tenants: in our measurement one tenant with 256 "
        "streams took another's TTFT p99 from 37 ms to 13 s on vLLM's own server.",
        key_phrases=("has no tenants",),
        questions=phrasings("""
            why not first come first served | what is wrong with a simple queue | why not use a FIFO
            queue | why is FIFO bad | what happens without fairness | what did you measure with a
            flooding tenant | is a plain queue not enough | first in first out | why do you not
            serve in order of arrival | disadvantages of first come first served | how bad is it
            without fair scheduling | wouldn't FIFO do | serving in order of arrival | trouble with
            first come first served | how bad is a flooder on an ordinary server | why no simple
            queue | is FIFO a bad idea | plain queue without tenants | problem of a FIFO queue |
            arrival order | what does a flooding tenant do to others on vLLM | first-come queues |
            normal servers serve in order, why is that bad | Wouldn't a simple FIFO queue do | Why
            is serving in order of arrival a bad idea | What's the trouble with
            first-come-first-served | How bad can a flooder be on an ordinary server
        """),
        held_out=phrasings("""
            Why don't you serve requests first come first served? | What speaks against a FIFO
            queue? | Is first-come-first-served not good enough? | What goes wrong with plain
            queues?
        """),
        topics=phrasings("first come first served | a FIFO queue"),
    ),
    Fact(
        key="scheduler_tiers",
        answer="The scheduler decides in three stages: first the class by weighted deficit, then "
        "the tenant by its virtual token counter, then the request by earliest deadline.",
        key_phrases=("three stages",),
        questions=phrasings("""
            how does the scheduler work | how does scheduling work | in what order are requests
            served | what are the stages of scheduling | how is the next request chosen | explain
            the scheduler | how do you decide what runs next | scheduling policy | what does the
            scheduler look at | what are the levels of the scheduler | describe the scheduling | how
            is work ordered | in which steps does the scheduler decide | how do you pick the next
            request | what is the scheduling strategy | how is work ordered by the scheduler |
            scheduler stages | class then tenant then request | strategy of the scheduler | which
            request will run next | how the scheduler picks | levels of scheduling | order of
            service | algorithm of the scheduler | How do you pick the request that runs next | What
            is your scheduling strategy | How does the scheduler order the work
        """),
        held_out=phrasings("""
            How does your scheduler decide what to run? | Tell me the stages of the scheduler. | How
            is the next request selected by the scheduler? | Please explain how scheduling is done.
        """),
        topics=phrasings("the scheduler | scheduling"),
    ),
    Fact(
        key="request_class",
        answer="Each request has a class, interactive or batch: classes share the GPUs by "
        "weight, and a starving class is promoted so that batch work also gets through.",
        key_phrases=("interactive or batch",),
        questions=phrasings("""
            what is a class | what is a request class | which classes are there | what is the
            difference between interactive and batch | what is batch class | can batch work starve |
            how are classes weighted | what is starvation promotion | do you support batch jobs |
            priority of requests | can I mark a request as low priority | background jobs | how do
            priorities work | what classes do you know | will batch jobs starve | submit low
            priority work | how do interactive and batch differ | kinds of requests | batch jobs |
            priority classes | interactive class | does batch ever get its turn | classes of work |
            mark work as batch | offline jobs | What classes of requests do you know | Will batch
            jobs ever starve | Can I submit low priority work | How do interactive and batch
            requests differ
        """),
        held_out=phrasings("""
            What does the batch class mean? | Which request classes exist? | Interactive versus
            batch, what is that? | Could batch requests starve?
        """),
        topics=phrasings("request classes | the batch class | starvation promotion | priorities"),
    ),
    Fact(
        key="headroom",
        answer="Headroom is a few slots and some KV memory kept back for tenants below their "
        "share, so a newcomer starts at once instead of waiting for a flooder's batch to "
        "end.",
        key_phrases=("kept back for tenants below their share",),
        questions=phrasings("""
            what is headroom | why do you keep slots free | what is headroom for | why are some
            slots reserved | how does a newcomer get served quickly | how much headroom is kept |
            what does headroom do | why is part of the GPU not given to everybody | free slots for
            newcomers | what helps a tenant that has just arrived | kept back slots | slots nobody
            may use except newcomers | reserve capacity | how much is held back | spare slots | why
            not fill the GPU completely | is capacity kept free on purpose | room for tenants that
            just came | Why does Penstock hold back a few slots | What do you mean by headroom | How
            is a newcomer protected from a flooder's running batch | For whom is the headroom meant
        """),
        held_out=phrasings("""
            What does headroom mean in Penstock? | What are the free slots kept for? | Why not use
            all slots, why keep headroom? | How does headroom help newcomers?
        """),
        topics=phrasings("headroom | the headroom"),
    ),
    Fact(
        key="preemption",
        answer="When even the headroom is gone, a batch-class request is aborted and requeued "
        "with its tokens kept, so that urgent work can start.",
        key_phrases=("aborted and requeued with its tokens kept",),
        questions=phrasings("""
            what is preemption | can a running request be interrupted for another | what happens
            when headroom is used up | what if no slot is free for an urgent request | can batch
            work be pushed out | does Penstock preempt requests | what happens when the headroom is
            gone | will my batch job be interrupted | which requests may be preempted | evict a
            batch request | what if everything is full and an interactive request comes | interrupt
            batch work for something urgent | is work ever pushed aside | batch gets aborted when |
            all slots are busy and an urgent call comes in | kicked off the GPU | will you throw my
            batch request out | make room for interactive work | Does Penstock ever preempt running
            work | What is done when the headroom runs out | Could my batch request be thrown out
            half way | How does urgent work get a slot when all are taken
        """),
        held_out=phrasings("""
            When is a running request preempted? | What will you do when no headroom is left? | Can
            a batch request be preempted? | Are running batch requests ever aborted for urgent ones?
        """),
        topics=phrasings("preemption"),
    ),
    Fact(
        key="deadline",
        answer="A request's deadline is its arrival time plus the TTFT target of its tier; among "
        "the requests of one tenant the earliest deadline goes first.",
        key_phrases=("arrival time plus the TTFT target",),
        questions=phrasings("""
            what is a deadline | how is the deadline computed | what is earliest deadline first |
            when is a request late | what deadline does a request have | how is urgency decided
            within a tenant | what does the deadline depend on | EDF | which of my own requests goes
            first | does a retried request keep its deadline | due time of a request | when must a
            request start | compute the deadline | which of my requests goes before the others |
            deadline formula | is there a due time | order of requests inside one tenant | earliest
            deadline | How do you work out the deadline of a request | Which request of the same
            tenant runs first | What determines when a request is due | What role do deadlines play
        """),
        held_out=phrasings("""
            By when does a request have to be served? | How is a deadline calculated? | What do you
            mean by earliest deadline first? | How does a request get its deadline?
        """),
        topics=phrasings("deadlines | the deadline of a request | a deadline"),
    ),
    Fact(
        key="credits",
        answer="Workers pull work with credits: a credit says how many slots, KV tokens and "
        "adapter places are free, so no request is ever bound to a busy worker.",
        key_phrases=("pull work with credits",),
        questions=phrasings("""
            how do workers get work | what is a credit | what are credits | do workers pull or push
            | how is a request assigned to a worker | is there a load balancer | how is load
            balanced between workers | how does a worker say that it has room | why do workers pull
            | pull versus push | how does work reach a GPU | does a slow worker get less work |
            which worker gets my request | how is work distributed among workers | load distribution
            | how does a worker obtain a request | free slots are announced how | is there round
            robin | balancing between GPUs | does the gateway choose the worker | How is the load
            spread over the workers | By what means does a worker obtain new requests | Why do
            workers pull instead of being pushed to | What are worker credits
        """),
        held_out=phrasings("""
            How do workers ask for work? | What does a worker's credit say? | How do you balance
            load among workers? | Why is it the workers who pull?
        """),
        topics=phrasings("credits | worker credits | load balancing"),
    ),
    Fact(
        key="claim",
        answer="A claim is the moment a worker takes a request out of the queue: one atomic "
        "function checks its credit, picks the request and opens a lease.",
        key_phrases=("takes a request out of the queue",),
        questions=phrasings("""
            what is a claim | what does claim mean | how does a worker claim a request | what
            happens at claim | when does a request leave the queue | how is a request taken from the
            queue | can two workers claim the same request | claiming work | the claim step | what
            is done when a worker claims | taking a request from the queue | what goes on when a
            worker claims | a worker picks up a request, how | claim function | how is a request
            handed to a worker | who claims requests | atomic claim | What do you mean by claiming |
            How does a worker take a queued request | What goes on during a claim | Could one
            request be claimed by two workers
        """),
        held_out=phrasings("""
            What does it mean to claim a request? | How do workers claim requests? | What happens
            when a request is claimed? | What is a claim in the queue?
        """),
        topics=phrasings("a claim | claiming | the claim"),
    ),
    Fact(
        key="queue",
        answer="Waiting requests stand in a queue in Redis, one per pool, with a cap per tenant; "
        "when the cap is reached the next request is refused at once.",
        key_phrases=("stand in a queue in Redis",),
        questions=phrasings("""
            where do requests wait | how does the queue work | what is the queue | where is the
            queue kept | how long can the queue get | is there a queue limit | what happens when the
            queue is full | what is a queue cap | what if all GPUs are busy | does my request wait |
            enqueue | how many requests can wait | which queue is used | place where requests wait |
            all GPUs are busy, what happens to my call | length of the queue | maximum queue length
            | full queue | how many may stand in line | waiting line | queue overflow | What happens
            to my request while all GPUs are busy | Where does a waiting request stay | Is the queue
            limited in length | What if too many requests are waiting
        """),
        held_out=phrasings("""
            Where are requests kept while they wait? | How many requests can be queued? | What
            happens if the queue is full? | Tell me about the request queue.
        """),
        topics=phrasings("the queue | queue caps | queueing"),
    ),
    Fact(
        key="idle_pool",
        answer="On an idle pool the enqueue call assigns the request to a waiting credit in the "
        "same step, so fairness costs nothing when nobody competes.",
        key_phrases=("fairness costs nothing",),
        questions=phrasings("""
            what happens on an idle pool | does fairness cost latency | what if nobody else is there
            | what happens when a worker is free | does the queue add delay when idle | how fast is
            an empty system | what happens when there is no load | do I wait when the GPUs are idle
            | overhead of fairness | is scheduling slow when nothing else runs | nobody else uses
            the pool | I am alone on the system | empty queue, free workers | extra latency from
            fair queueing | is it quick when there's no competition | free workers and one request |
            cost of fair queueing at low load | If the pool is idle, does fair queueing slow me down
            | What price does fairness have without competition | What happens when I am the only
            user | Is there extra delay when the workers are free
        """),
        held_out=phrasings("""
            What does fairness cost on an idle pool? | How quick is it when no one else is using the
            pool? | What happens to a request on an idle pool? | Do I lose time to fairness when the
            system is idle?
        """),
        topics=phrasings("an idle pool"),
    ),
    Fact(
        key="pool",
        answer="A pool is a group of workers that serve the same base model and share one queue.",
        key_phrases=("group of workers",),
        questions=phrasings("""
            what is a pool | what is a worker pool | what do you call a group of workers | what is
            in a pool | why are workers grouped | how are workers organised | does each model have
            its own workers | can I have several pools | what does pool mean | how are GPUs grouped
            by model | which workers belong together | set of workers for one model | define pool |
            grouping of workers | workers that serve the same model | one queue for several workers
            | what is shared inside a pool | What does the term pool refer to | How are the workers
            grouped | What do the workers of a pool have in common | Give me the definition of a
            pool
        """),
        held_out=phrasings("""
            What is meant by a pool? | Which workers make up a pool? | What's a pool of workers? |
            Why do you put workers into pools?
        """),
        topics=phrasings("a pool | pools | a worker pool"),
    ),
    Fact(
        key="hash_tag",
        answer="A hash tag is the part of a Redis key in braces, like {t:acme} for a tenant or "
        "{m:pool} for a pool: keys with the same tag lie in one slot, so Redis Cluster "
        "works.",
        key_phrases=("part of a Redis key in braces",),
        questions=phrasings("""
            what is a hash tag | what are hash tags for | why are there braces in the Redis keys |
            what does {t:tenant} mean | does Penstock work with Redis Cluster | how are Redis keys
            named | why do keys have curly braces | what is a slot in Redis Cluster | is Redis
            Cluster supported | naming of keys in Redis | how is Redis sharded | curly brackets in
            keys | braces in Redis key names | run it on Redis Cluster | {m:pool} meaning | which
            keys are in the same slot | key naming scheme | Redis sharding | Why do Redis keys
            contain curly brackets | What's the use of hash tags | Can I run it on a Redis Cluster |
            What good does a hash tag do
        """),
        held_out=phrasings("""
            What do the braces in Redis keys do? | Why do you need hash tags? | Would it work on a
            Redis Cluster? | What does {t:acme} in a key mean?
        """),
        topics=phrasings("hash tags | a hash tag | Redis Cluster support"),
    ),
    Fact(
        key="lua",
        answer="Atomic work in Redis is done by Lua functions, one file each, so a check and its "
        "change can never be separated by another client.",
        key_phrases=("done by Lua functions",),
        questions=phrasings("""
            why do you use Lua | what are the Lua functions for | how is Redis work made atomic |
            what is Lua used for | how do you avoid race conditions | are Redis operations atomic |
            where are the Lua scripts | check then increment race | how do you prevent races in the
            limits | why not several Redis commands | race conditions | atomic updates in Redis |
            why are there .lua files | scripts inside Redis | two gateways change the same counter |
            use of Lua in the project | reserve function in Lua | What role does Lua play | How do
            you prevent race conditions between gateways | Why are there Lua files in the code | How
            do Redis updates stay atomic
        """),
        held_out=phrasings("""
            What do you need Lua for? | How do you make Redis operations atomic? | Why is there Lua
            in this project? | How are race conditions in Redis avoided?
        """),
        topics=phrasings("Lua | the Lua functions"),
    ),
    Fact(
        key="redis_time",
        answer="Time is always taken from Redis (its TIME command), so all gateways and workers "
        "agree on one clock even if their own clocks drift.",
        key_phrases=("agree on one clock",),
        questions=phrasings("""
            which clock is used | where does the time come from | what if clocks differ between
            machines | why do you use Redis TIME | what about clock drift | how do you deal with
            clock skew | whose clock counts | do the machines need synchronised clocks | do I need
            NTP | what is the source of time | server clocks disagree | clock skew | which machine's
            clock is trusted | source of the time | wrong system time on a worker | time
            synchronisation | is NTP necessary | Redis TIME command | Does it matter when server
            clocks disagree | What is your time source | How is clock skew handled | Why is time
            read from Redis
        """),
        held_out=phrasings("""
            Whose clock do you use? | What if the clock of a worker is wrong? | How do you handle
            clock drift? | From where does Penstock take the time?
        """),
        topics=phrasings("the clock | clock drift"),
    ),
)
