"""What a request costs, and where that is written down."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

MONEY = (
    Fact(
        key="nano_dollars",
        answer="Money is counted in nano-dollars: whole numbers of a billionth of a dollar, "
        "because a token costs so little and floating point would lose some of it.",
        key_phrases=("counted in nano-dollars",),
        questions=phrasings("""
            what is a nano-dollar | how is money represented | why nano-dollars | what unit is used
            for money | do you use floats for money | how are prices stored | in which currency unit
            do you count | why don't you use floating point for money | how precise is the billing |
            money as integers | smallest unit of money | are there rounding errors in the bill |
            decimal or integer money | in what unit is money counted | why store amounts as
            nano-dollars | is money a float | how are rounding errors avoided | billionth of a
            dollar | unit of amounts | what is the smallest amount | integer money | why so small a
            unit | representation of amounts | precision of money | are amounts exact | In what unit
            does Penstock count money | Why do you store amounts as nano-dollars | Is money kept as
            a float | How do you avoid rounding errors in amounts
        """),
        held_out=phrasings("""
            Why nano-dollars instead of floats? | What unit do you use for money? | How are amounts
            of money stored? | I see amounts in nano-dollars, what is that unit?
        """),
        topics=phrasings("nano-dollars | a nano-dollar | the money unit"),
    ),
    Fact(
        key="ledger",
        answer="The ledger is append-only and double-entry: every amount leaves one account and "
        "enters another, and nothing is ever edited or deleted.",
        key_phrases=("append-only and double-entry",),
        questions=phrasings("""
            what is the ledger | how does the ledger work | what does double-entry mean | can an
            entry be changed | how is bookkeeping done | where is money booked | can I correct a
            booking | what is append-only | how do you keep accounts | accounting in Penstock | is
            the ledger editable | where are transactions recorded | books | how is bookkeeping done
            here | what kind of ledger is it | can a booking be edited | explain double-entry |
            accounts and entries | delete a ledger entry | ledger entries | how do you book amounts
            | is the ledger append only | change an entry afterwards | accounting entries | do you
            use double-entry | How do you do the bookkeeping | What kind of ledger does Penstock
            keep | Can a ledger entry be edited afterwards | I noticed that you use double-entry,
            why so
        """),
        held_out=phrasings("""
            What is your ledger like? | Is it possible to modify a ledger entry? | How does
            double-entry work in Penstock? | How do you book money?
        """),
        topics=phrasings("the ledger | double-entry bookkeeping"),
    ),
    Fact(
        key="invoice",
        answer="An invoice is made once per month from the ledger; usage, rollups, ledger and "
        "invoice must agree with a difference of zero.",
        key_phrases=("difference of zero",),
        questions=phrasings("""
            how are invoices made | when do I get an invoice | what is on the invoice | is the
            invoice correct | how often am I billed | does the invoice match the usage | monthly
            bill | when is the bill sent | how do I know that my bill is right | where does the
            invoice come from | do usage and invoice agree | billing period | when will I get my
            bill | how often do invoices come | can I trust the invoice | what is an invoice
            computed from | is my invoice right | the bill of the month | when do you send bills |
            invoice frequency | how is the bill made | billing once a month | does the bill agree
            with the ledger | receive an invoice | When will I receive my bill | How can I trust
            that the invoice is right | From what is an invoice computed | How frequently do
            invoices come
        """),
        held_out=phrasings("""
            How often will you send an invoice? | Where do the numbers on my invoice come from? |
            When is the invoice made? | Do invoice and ledger agree?
        """),
        topics=phrasings("invoices | an invoice | the monthly bill"),
    ),
    Fact(
        key="price",
        answer="The price book holds the price of each model per million tokens, separately for "
        "prompt, cached and completion tokens, with the date from which it is valid.",
        key_phrases=("price book holds",),
        questions=phrasings("""
            what is the price book | what does a token cost | how much does a request cost | how are
            prices set | where are prices kept | price per million tokens | what is the price of a
            model | are output tokens more expensive than input tokens | do cached tokens cost less
            | how is the price of a call computed | who sets the prices | how expensive is a call |
            pricing | how much do tokens cost | where are model prices defined | what is in the
            price book | do prompt and completion tokens cost the same | price of tokens | how are
            models priced | what will a call cost me | rates for tokens | price list | completion
            token price | cost per token | change a price | Where do you define model prices |
            What's in the price book | Is the price different for prompt and completion tokens
        """),
        held_out=phrasings("""
            What will a million tokens cost me? | Where do I find the prices of models? | How is the
            price of tokens defined? | What is the purpose of the price book?
        """),
        topics=phrasings("the price book | prices | pricing"),
    ),
    Fact(
        key="usage_record",
        answer="A usage record is the one line written when a request ends: who called which "
        "model, with how many prompt, cached and completion tokens. Each request has "
        "exactly one.",
        key_phrases=("one line written when a request ends",),
        questions=phrasings("""
            what is a usage record | what is recorded about a request | how is usage recorded | what
            does a usage record contain | is usage ever counted twice | where do token counts go |
            what is saved when a request is over | how do you measure consumption | how many usage
            records does a request have | usage data | metering | what is written about a finished
            request | how does metering work | contents of a usage record | can a request be
            recorded twice | what do you store per request | one record per request | token counts
            of a request | record of use | how do you count usage | what is noted when a request is
            done | measuring usage | usage entry | What do you write down about each finished
            request | What's inside a usage record | Can one request be recorded two times
        """),
        held_out=phrasings("""
            What does a usage record hold? | How many usage records are there for one request? |
            What do you record when a request has ended? | How is my usage measured?
        """),
        topics=phrasings("a usage record | usage records | metering"),
    ),
    Fact(
        key="waste",
        answer="Waste is every token that was generated but not delivered, for example by an "
        "attempt that died; it is recorded with its reason and never billed.",
        key_phrases=("generated but not delivered",),
        questions=phrasings("""
            what is waste | what is wasted work | am I billed for failed attempts | who pays for
            lost tokens | what happens to tokens that were generated in vain | is waste billed | do
            I pay when a worker crashes | do I pay for retries | what counts as waste | tokens
            nobody received | are aborted attempts charged | do failed attempts appear on the bill |
            who pays for tokens never received | am I charged if a machine crashes | what do you
            call waste | undelivered tokens | tokens lost in a crash | generated for nothing | cost
            of failed attempts | do I owe money for aborted attempts | tokens that did not reach me
            | useless tokens | paying for crashes | Do failed attempts show up on my bill | Who pays
            for tokens that never reached me | Am I charged if the machine crashes
        """),
        held_out=phrasings("""
            Do I have to pay for tokens I never got? | What does waste mean in Penstock? | Is waste
            on my bill? | If an attempt fails, who pays for it?
        """),
        topics=phrasings("waste | wasted tokens"),
    ),
    Fact(
        key="billed_cancel",
        answer="After a cancel you pay the prompt and the completion tokens made until the "
        "cancel reached the engine, and nothing more.",
        key_phrases=("until the cancel reached",),
        questions=phrasings("""
            do I pay for a cancelled request | what is billed after a cancel | is a cancelled
            request free | how much does an aborted request cost | what do I pay if I stop the
            answer | am I charged when I cancel | cost of a cancelled call | bill for an aborted
            answer | do I pay for an interrupted answer | charge after abort | what am I charged if
            I cancel | does an aborted answer cost anything | do cancelled requests cost money |
            what's billed when I stop | price of cancelling | is cancelling free | payment for a
            stopped generation | I cancelled, do I owe something | charge for a cancelled request |
            costs after I abort | bill when I cancel half way | cancel and pay | If I cancel, what
            will I be charged | What's billed when I stop a generation
        """),
        held_out=phrasings("""
            What do I owe after cancelling? | Am I billed for a request that I cancelled? | How is a
            cancelled request billed? | What does cancelling cost me?
        """),
    ),
    Fact(
        key="service_credits",
        answer="Service credits pay a tenant back when its tier's promise was missed; they are "
        "computed from the measured SLA, not from complaints.",
        key_phrases=("service credits pay a tenant back",),
        questions=phrasings("""
            what are service credits | what happens when the SLA is missed | do I get money back
            when it is slow | is there compensation for bad service | what if you break your promise
            | refund for downtime | how are service credits computed | do you refund slow answers |
            compensation | what do I get if the target is not met | SLA violation | will I be
            compensated | what's a service credit | refund when latency is missed | what if you
            break the SLA | credit for bad service | SLA isn't met | compensation if targets are
            missed | money back guarantee | do I get credits | you did not keep the promise, what do
            I get | the service was slow, refund | credits from SLA | Will I be compensated if the
            SLA isn't met | What is a service credit | Is there a refund when latency targets are
            missed | What do you do when you break the SLA
        """),
        held_out=phrasings("""
            When do I get service credits? | What do I receive if you miss the SLA? | Are there
            refunds for a missed SLA? | How are service credits worked out?
        """),
        topics=phrasings("service credits | compensation"),
    ),
    Fact(
        key="payments",
        answer="Payments go through a provider protocol; Stripe comes as an optional extra, and "
        "without it Penstock only counts and invoices.",
        key_phrases=("Stripe comes as an optional extra",),
        questions=phrasings("""
            how do customers pay | do you support Stripe | which payment providers work | can I pay
            by credit card | how does payment work | is there a payment integration | is Stripe
            required | charge customers by card | collect money from customers | does Penstock take
            payments | PayPal | pay the invoice | which payment methods are there | pay with a card
            | Stripe integration | how is an invoice paid | how can I pay | accept credit cards |
            can customers pay online | payment provider | connect Stripe | methods of payment | bank
            transfer or card | billing provider integration | What payment methods are integrated |
            Can my clients pay with a card | Is there a Stripe integration
        """),
        held_out=phrasings("""
            Is Stripe supported? | How would my customers pay me? | Which payment provider do you
            use? | Can one pay by credit card?
        """),
        topics=phrasings("payments | Stripe"),
    ),
)
