"""Limits, refusals and reservations."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

LIMITS = (
    Fact(
        key="quota",
        answer="A quota is a limit on use: requests per minute, tokens per minute, concurrent "
        "requests or a budget in money, set per tenant, project or key.",
        key_phrases=("quota is a limit on use",),
        questions=phrasings("""
            what is a quota | which limits are there | what kinds of limits does Penstock have | how
            can I limit usage | can I restrict a project | what quotas can I set | list the limits |
            how do I cap a key | what can be limited | which usage limits exist | how is consumption
            restricted | limit a tenant | which limits can be configured | what's a quota | how do I
            define a quota | can I limit a single key | what can be restricted | sorts of limits |
            set a limit on a project | types of quota | put limits on a tenant | available limits |
            limit what a key may do | how is usage capped | What sorts of limits can be configured |
            How would you define a quota | Can I put a limit on a single key | What can I restrict
            for a tenant
        """),
        held_out=phrasings("""
            What quotas does Penstock know? | Which kinds of limits can I set? | How can I limit
            what a project uses? | Tell me about quotas and limits.
        """),
        topics=phrasings("a quota | quotas | usage limits"),
    ),
    Fact(
        key="rate_limit",
        answer="RPM counts requests per minute and TPM counts tokens per minute. The windows "
        "live in Redis and are checked for all gateways together, so a limit never leaks.",
        key_phrases=("RPM counts requests per minute",),
        questions=phrasings("""
            what is RPM | what is TPM | what do rpm and tpm mean | how does rate limiting work |
            tokens per minute | requests per minute | what is the rate limit | are rate limits per
            replica | where are rate windows kept | difference between rpm and tpm | how are rates
            counted | do limits hold across several gateways | throttling | what do RPM and TPM
            stand for | how does the rate limiter work | is the rate counted for each gateway | how
            are requests per minute enforced | limit of requests a minute | limit of tokens a minute
            | rate limiter | explain TPM | explain RPM | do several gateways share the rate limit |
            requests in a minute | how fast may I send requests | What do the abbreviations RPM and
            TPM stand for | Is the rate limit counted for each gateway separately | How many
            requests a minute, how is that enforced
        """),
        held_out=phrasings("""
            How are requests per minute limited? | What does TPM mean? | Do all gateways share one
            rate limit? | How do RPM and TPM differ from each other?
        """),
        topics=phrasings("rate limiting | RPM | TPM | rate limits"),
    ),
    Fact(
        key="concurrency_limit",
        answer="The concurrency limit says how many requests of a tenant may be open at the same "
        "moment, queued or running; one more is refused until another ends.",
        key_phrases=("open at the same moment",),
        questions=phrasings("""
            what is the concurrency limit | how many requests can I run at once | how many parallel
            requests are allowed | limit on simultaneous requests | what is concurrency | can I send
            many requests in parallel | maximum open streams | how many streams at the same time |
            parallel calls | how many concurrent calls may I make | cap on simultaneous requests |
            how many calls in flight | what does the concurrency limit mean | streams open at once |
            number of parallel requests | can I open many streams | limit on parallelism | maximum
            number of requests at the same time | how many requests can be open | simultaneous calls
            | too many open requests | parallel limit | Is there a cap on simultaneous requests |
            How many calls may I have in flight in parallel | What does the concurrency limit do |
            How many streams can be open at once
        """),
        held_out=phrasings("""
            How many requests may be open at one time? | What's the limit on parallel requests? |
            Can I run many requests simultaneously? | Which limit stops me from opening too many
            streams in parallel?
        """),
        topics=phrasings("the concurrency limit | concurrency"),
    ),
    Fact(
        key="budget",
        answer="A budget is a hard ceiling on spending: a request whose worst case no longer "
        "fits is refused before it runs, so the ceiling is never passed.",
        key_phrases=("hard ceiling on spending",),
        questions=phrasings("""
            what is a budget | can I limit my spending | how do I set a spending limit | what
            happens when my budget is used up | can my bill explode | how do I avoid a surprise bill
            | maximum spend per month | cost cap | what if I run out of money | can I stop spending
            at a certain sum | how are budgets enforced | is there a spending ceiling | keep my
            costs under control | how do I make sure not to overspend | what if the budget is
            exhausted | cap costs | how does a budget work | never spend more than a set amount |
            limit costs for a project | prevent runaway costs | what does a budget do | ceiling for
            my spending | money limit | stop when the money is gone | can costs get out of hand |
            How can I make sure I never spend more than a set amount | What happens once the budget
            is exhausted | Is there a way to cap costs | I gave my project a budget, what does that
            do for me
        """),
        held_out=phrasings("""
            How can I keep my spending under a maximum? | What happens when there is no budget left?
            | How do I limit how much money is spent? | Why would a tenant set itself a budget?
        """),
        topics=phrasings("a budget | budgets | spending limits"),
    ),
    Fact(
        key="refusal",
        answer="A refusal explains itself: it names the limit, its scope, how much is used and "
        "when it resets, with status 429.",
        key_phrases=("refusal explains itself",),
        questions=phrasings("""
            what does a 429 mean | why was my request refused | what happens when I hit a limit |
            too many requests error | what does a refusal contain | which limit did I hit | how do I
            know when to retry | error 429 | what is in the error when a limit is reached | I am
            being rate limited | when does my limit reset | what does the error say if I exceed my
            quota | my call was rejected | what now after a 429 | which limit stopped me |
            information in a refusal | I went over my quota | what if I exceed a limit | request
            denied because of a limit | how do I find out why I was refused | status 429 | limit
            exceeded error | what does the API tell me when it refuses | refused request | rejected
            because of too many requests | I get status 429, what now | How can I tell which limit
            stopped me | What information comes with a refusal | What happens if I go over my quota
        """),
        held_out=phrasings("""
            Why did I get a 429? | What does the API tell me when a limit is hit? | How do I see
            which limit was exceeded? | What is inside a refusal?
        """),
        topics=phrasings("a refusal | refusals"),
    ),
    Fact(
        key="reserve",
        answer="To reserve means to set aside the worst case of a request, in tokens and money, "
        "in one atomic Redis function before it is queued.",
        key_phrases=("set aside the worst case",),
        questions=phrasings("""
            what is a reservation | what does reserve mean | how does the reserve step work | what
            happens at admission | why do you reserve the worst case | how is a request admitted |
            what is the admission step | what is checked before a request is queued | how are limits
            checked atomically | what is set aside for a request | explain admission control |
            reserving tokens | what does it mean to reserve | how does admission work | what's a
            reservation good for | what is checked on admission | explain reservations | worst case
            of a request | before queueing, what is set aside | first step after the door | reserve
            tokens and money | why reserve anything | how do you admit requests | admission of a
            request | What is a reservation good for | What gets checked when a request is admitted
        """),
        held_out=phrasings("""
            What happens in the reserve step? | What gets reserved before a request runs? | What is
            checked at admission? | Why is the worst case reserved?
        """),
        topics=phrasings("a reservation | the reserve step | admission"),
    ),
    Fact(
        key="settle",
        answer="To settle means to replace the reserved worst case by what was really used; the "
        "rest goes back to the tenant, and each reservation is resolved exactly once.",
        key_phrases=("replace the reserved worst case",),
        questions=phrasings("""
            what does settle mean | what is settling | how is a request settled | when do I get the
            unused reservation back | what happens to the rest of a reservation | what is settlement
            | how does the bill of one request get final | is a reservation returned | what comes
            after the finish of a request | settle a reservation | what happens with money reserved
            but not used | what is meant by settling | do I get the unused part back | how does
            settlement work | what becomes of the reservation at the end | true up after the request
            | returning the rest of the reservation | actual use instead of worst case | final
            accounting of a request | resolve a reservation | unused tokens return | explain
            settlement | What is meant by settling a request | Do I get back what was reserved and
            not used | At the end, what becomes of the reservation
        """),
        held_out=phrasings("""
            When is a reservation settled? | What happens to tokens that were reserved and not used?
            | What does it mean that a request is settled? | How do you settle a request?
        """),
        topics=phrasings("settling | settle | settlement"),
    ),
    Fact(
        key="prompt_bound",
        answer="The gateway has no tokenizer, so it bounds a prompt by its UTF-8 bytes plus a "
        "template overhead; the worker's real count corrects that later.",
        key_phrases=("bounds a prompt by its UTF-8 bytes",),
        questions=phrasings("""
            how does the gateway count prompt tokens | how are tokens estimated | does the gateway
            have a tokenizer | how is the prompt size known before it runs | why is the first
            estimate too high | how do you bound the prompt | token estimate | how many tokens is my
            prompt worth at admission | prompt length estimate | who counts the prompt tokens |
            counting without a tokenizer | guess the length of a prompt | does the gateway tokenize
            | estimate of prompt tokens at admission | bound for the prompt | how does the gateway
            know the prompt length | number of tokens before running | prompt tokens are estimated
            how | why UTF-8 bytes | count of tokens on the gateway | upper bound on prompt tokens |
            how large is my prompt assumed to be | no tokenizer at the gateway | How can the gateway
            guess a prompt's length | Does the gateway tokenize my prompt | How do you estimate the
            number of prompt tokens at admission | What bound is used for the prompt
        """),
        held_out=phrasings("""
            How do you know how many tokens my prompt has? | How is the prompt's size estimated? |
            Why are bytes used to bound the prompt? | Has the gateway got a tokenizer?
        """),
        topics=phrasings("the prompt bound | the prompt estimate"),
    ),
)
