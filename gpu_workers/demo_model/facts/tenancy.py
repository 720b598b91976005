"""Who may call: tenants, projects, keys, tiers, and the walls between them."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

TENANCY = (
    Fact(
        key="tenant",
        answer="A tenant is one customer of the service, such as a company. It owns projects, "
        "keys, adapters and a bill, and it never sees anything of another tenant.",
        key_phrases=("one customer of the service",),
        questions=phrasings("""
            what is a tenant | who counts as a tenant | is a tenant a company | what belongs to a
            tenant | what do you call a customer | is a tenant a user | what does a tenant own |
            what does tenant mean | explain the word tenant | what is meant by tenancy | what is the
            top level of ownership | explain the term tenant | what exactly is a tenant | what's a
            tenant in your terms | is a customer a tenant | which things belong to a tenant | tenant
            definition | who is a tenant | what do tenants have | what makes up a tenant | is an
            organisation a tenant | what is one tenant | what kind of thing is a tenant | How would
            you explain the term tenant | What exactly do you mean by a tenant | Is every customer a
            tenant | What things does a tenant own
        """),
        held_out=phrasings("""
            Who or what is a tenant? | In Penstock's language, what is a tenant? | What would be an
            example of a tenant? | Could you define tenant?
        """),
        topics=phrasings("a tenant | tenants | the notion of a tenant"),
    ),
    Fact(
        key="multi_tenant",
        answer="Multi-tenant means that many customers share the same machines while each one "
        "has its own keys, limits, queue position and bill.",
        key_phrases=("many customers share the same machines",),
        questions=phrasings("""
            what does multi-tenant mean | what is multi-tenancy | why multi tenant | explain
            multi-tenant | what is a multi-tenant service | what does it mean that Penstock is
            multi-tenant | sharing GPUs between customers | how can several customers use one GPU |
            can two companies share the hardware | shared hardware for many customers | in what
            sense is it multi-tenant | what's meant by multi-tenant | can several customers share
            the machines | is the hardware shared | define multi-tenancy | is the service multi
            tenant | why is it called multi-tenant | sharing one machine among customers | many
            tenants on one GPU | do customers share GPUs | one set of machines for everybody |
            meaning of multi-tenant | What is meant by multi-tenant | People say your system is
            multi-tenant, meaning what | In what sense is the service multi-tenant | Can several
            customers share one set of machines
        """),
        held_out=phrasings("""
            Why do you call it multi-tenant? | What do people mean by multi-tenancy? | How do many
            customers share one machine? | You say multi-tenant all the time, please explain that
            word.
        """),
        topics=phrasings("multi-tenancy | multi-tenant serving"),
    ),
    Fact(
        key="project",
        answer="A project divides a tenant: each project has its own API keys, quota and share, "
        "so a team or an application can be counted by itself.",
        key_phrases=("project divides a tenant",),
        questions=phrasings("""
            what is a project | what are projects for | how is a tenant divided | can I separate my
            teams | can I split my usage by application | why do I need projects | what is inside a
            project | how do I count each team separately | project versus tenant | what is the
            level below the tenant | does every app need its own project | what would I use a
            project for | tell me what a project is | can I keep applications apart | difference
            between project and tenant | why split a tenant into projects | divide my tenant | keep
            teams apart | one project per app | what do projects give me | separate budgets for two
            teams | subdivision of a tenant | are there sub-accounts | What do I use projects for |
            I heard that tenants have projects, what might those be | Can I keep two of my
            applications apart | What is the difference between a tenant and a project
        """),
        held_out=phrasings("""
            Why should I create projects? | What does a project contain? | How do I separate two
            teams of one tenant? | What's a project in Penstock?
        """),
        topics=phrasings("a project | projects"),
    ),
    Fact(
        key="membership",
        answer="A membership ties a person to a tenant with a role, so that an owner can "
        "administer keys while a viewer can only look.",
        key_phrases=("membership ties a person",),
        questions=phrasings("""
            what is a membership | which roles are there | what roles can a user have | how do I
            give a colleague access | how do I invite a user | what permissions do people have | who
            may administer a tenant | role based access | add a team member | can I give somebody
            read only access | user permissions | how are users and tenants connected | what is a
            role | let a colleague in | what does a membership do | which roles exist | permission
            only to look | how do people belong to a tenant | give a person access to my tenant |
            user roles | can somebody just view | what may a viewer do | owner and viewer | how do I
            add people | who can see my tenant | How do I let a colleague into my tenant | What ties
            a person to a tenant | Which user roles exist | Can someone be given permission only to
            look
        """),
        held_out=phrasings("""
            How can I add a coworker to my tenant? | Are there different roles for users? | What is
            the role of a membership? | I want to give someone view-only access, how?
        """),
        topics=phrasings("memberships | roles | a membership"),
    ),
    Fact(
        key="api_key",
        answer="An API key is the secret your program sends with each request; it belongs to a "
        "project and tells Penstock who is calling.",
        key_phrases=("secret your program sends",),
        questions=phrasings("""
            what is an API key | what are API keys for | how do I authenticate | how do I log my
            program in | what do I put in the authorization header | do I need a key | how does
            Penstock know who I am | what is the bearer token | how does a program identify itself |
            authentication for programs | which credential does a client need | what is a key used
            for | what do I need a key for | how do clients authenticate | how does a program prove
            its identity | explain API keys | why do I need an API key | what must I send to be
            recognised | how are callers identified | which secret does my program send |
            authentication of clients | what's an API key good for | how do you know who calls |
            authorization header | How does my program prove who it is | What do I need an API key
            for | How do clients authenticate themselves | Why would I have to send an API key
        """),
        held_out=phrasings("""
            What's the use of an API key? | How does the service recognise my program? | What is the
            secret in my API key needed for? | How do I authenticate my calls?
        """),
        topics=phrasings("an API key | API keys"),
    ),
    Fact(
        key="key_storage",
        answer="API keys are never stored in plain text: only an HMAC of each key is kept, so "
        "even a stolen database does not reveal them. A key is shown once, when it is "
        "made.",
        key_phrases=("only an HMAC",),
        questions=phrasings("""
            how are API keys stored | are keys stored in plain text | can I see my key again | I
            lost my API key | are the keys encrypted | are keys hashed | is my key safe in the
            database | what if the database is stolen | can an admin read my key | can you show me
            my old key | how do you protect the keys | what is the HMAC for | where is my key kept |
            I forgot my key | are API keys kept in clear text | how safely are the keys stored | can
            I look up a key later | what would a thief learn about my keys | do you store my key |
            is a stored key readable | can I recover a lost key | will I see the key a second time |
            plain text keys | how do you save the keys | somebody copies the database, are my keys
            safe | hash of the key | Do you keep API keys in clear text | Can I look up my key later
            if I lose it | How safely are keys stored | What would a thief of the database learn
            about the keys
        """),
        held_out=phrasings("""
            In which form do you store API keys? | I can't find my key any more, can you show it? |
            Are API keys saved as plain text? | If your database leaks, are my keys exposed?
        """),
        topics=phrasings("key storage | the storage of API keys"),
    ),
    Fact(
        key="revoke_key",
        answer="Revoke a leaked key in the dashboard or by the management API: new requests with "
        "it are refused within seconds, and your other keys go on working.",
        key_phrases=("revoke a leaked key",),
        questions=phrasings("""
            how do I revoke a key | my key was leaked | how do I disable an API key | someone stole
            my API key | how do I delete a key | how do I block a key | how do I rotate keys | what
            do I do when a key is compromised | I pushed my key to GitHub | deactivate a key |
            invalidate a key | how fast does revocation work | turn off a key | make a key invalid |
            what should I do about a leaked key | procedure for a stolen key | I accidentally
            published a key | withdraw a key | my key is public now | someone else has my key |
            cancel an API key | how to get rid of a key | lock a key | my secret key got out | stop
            a key from working | I accidentally published my API key, what should I do | How can I
            make a key invalid | What's the procedure for a stolen key | Can I withdraw a key that
            leaked
        """),
        held_out=phrasings("""
            My key got leaked on the internet, help! | How do I disable a key that was stolen? |
            What must I do to revoke an API key? | How can I deactivate a compromised key?
        """),
        topics=phrasings("key revocation | revoking a key"),
    ),
    Fact(
        key="sla_tier",
        answer="An SLA tier is the service class a tenant buys: it sets the TTFT target, the "
        "share of the GPUs, the limits and the default output length.",
        key_phrases=("service class a tenant buys",),
        questions=phrasings("""
            what is an SLA tier | what is a tier | which tiers are there | what does a tier decide |
            what do I get with a higher tier | what is the SLA | difference between tiers | what
            does SLA mean | how do tiers differ | gold silver bronze | service level | premium
            customers get what | what determines my service level | what does a tier determine |
            what changes with a better tier | what are service levels | explain SLA tiers | which
            tier should I buy | what's in a tier | what does the tier of a tenant set | benefits of
            a better tier | what is promised by a tier | service classes | upgrade my tier | what
            depends on the tier | What does my tier determine | How would you define an SLA tier |
            What changes when I buy a better tier | What do service levels mean in Penstock
        """),
        held_out=phrasings("""
            What is included in an SLA tier? | What does choosing a tier change for me? | How do the
            SLA tiers work? | Tell me what a tier means.
        """),
        topics=phrasings("an SLA tier | SLA tiers | a tier"),
    ),
    Fact(
        key="isolation",
        answer="Tenants are isolated at every level: no tenant sees another's objects, streams, "
        "adapters, cache hits or error texts.",
        key_phrases=("isolated at every level",),
        questions=phrasings("""
            are tenants isolated | can another customer see my data | is my data separated from
            others | how do you isolate tenants | can tenants see each other | is there any leak
            between customers | can my competitor read my prompts | how safe is it to share with
            strangers | separation of customers | tenant isolation | does one tenant see anything of
            another | are customers kept apart | how well are customers separated | can another
            company see my stuff | is there isolation | can a stranger see my output | do tenants
            share anything visible | could somebody else read what I generate | are my objects
            visible to others | walls between tenants | do you keep customers apart | is my stuff
            private from other tenants | cross-tenant leaks | can others look into my account |
            Could another company on the same service see my stuff | How well are customers
            separated from one another | Is there isolation between tenants | Can a stranger see
            what I generate
        """),
        held_out=phrasings("""
            Can other tenants see my requests? | How strongly are tenants isolated from each other?
            | Is my data visible to other customers? | What keeps tenants apart?
        """),
        topics=phrasings("tenant isolation | the isolation of tenants"),
    ),
    Fact(
        key="not_found",
        answer="Unknown and forbidden look the same: both are answered with 404, so nobody can "
        "find out by guessing whether another tenant's object exists.",
        key_phrases=("unknown and forbidden",),
        questions=phrasings("""
            why do I get a 404 | why 404 instead of 403 | what does a 404 mean | not found error |
            what if I ask for another tenant's object | why is there no forbidden error | I get not
            found for something that exists | which error do I get for a forbidden object | why not
            answer 403 | can I guess ids of other customers | error 404 | why does a forbidden
            object give not found | which status for somebody else's object | why do you never
            return 403 | could an attacker probe ids | status code for a foreign object | a
            forbidden resource | I know it exists but get 404 | access another tenant's adapter by
            id | 403 or 404 | is forbidden distinguishable from unknown | guessing ids | hide
            existence of objects | Why does a forbidden object give 404 | What status do I get for
            someone else's object | Why don't you return 403 | Could an attacker probe for ids that
            exist
        """),
        held_out=phrasings("""
            Why am I getting 404 for an object of another tenant? | Why is it 404 and not forbidden?
            | What's the reason you answer not found instead of 403? | What does the API say about
            objects I may not see?
        """),
    ),
    Fact(
        key="rls",
        answer="Row-level security in PostgreSQL is the second wall: the web role can only touch "
        "rows of the tenant set for its transaction, even if a query forgets to filter.",
        key_phrases=("row-level security", "second wall"),
        questions=phrasings("""
            what is row-level security | what is RLS | how is the database isolated | what if a
            query forgets the tenant filter | do you use row level security | how are rows protected
            | what protects tables from other tenants | database isolation | does every tenant have
            its own schema | do you use a schema per tenant | one database per tenant | postgres
            policies | how are tenants kept apart in the database | what does row level security do
            | a schema for each tenant | developer forgets to filter | who stops a query from
            reading other tenants' rows | are tables shared between tenants | isolation inside
            PostgreSQL | security at the level of rows | how do you secure the tables | bug in a
            query shows foreign rows | database roles and rows | separate databases | How do you
            keep tenants apart inside the database | What does RLS do for you | Is there a separate
            schema for each tenant | What if a developer forgets to filter by tenant
        """),
        held_out=phrasings("""
            What does row-level security protect? | How does PostgreSQL separate the rows of
            tenants? | What if some query has no tenant filter? | Do you use one schema per
            customer?
        """),
        topics=phrasings("row-level security | RLS"),
    ),
    Fact(
        key="login",
        answer="People log in with a password, a passkey or single sign-on by OpenID Connect; "
        "multi-factor login is included.",
        key_phrases=("single sign-on by OpenID Connect",),
        questions=phrasings("""
            how do users log in | do you support single sign-on | is there SSO | can I use passkeys
            | is two factor authentication supported | can I log in with my company account | do you
            support OIDC | sign in with Google or Okta | is there MFA | how do I sign in | login
            methods | does it support SAML or OpenID | logging in to the dashboard | which ways of
            signing in exist | corporate login | does it have two-factor | are passkeys possible |
            how does a person sign in | can staff use single sign on | sign in methods | OpenID
            Connect | is 2FA available | how do people get into the dashboard | log in without a
            password | authentication for humans | Which ways of signing in are there | Can our
            staff use their corporate login | Does Penstock have two-factor login | Are passkeys
            supported
        """),
        held_out=phrasings("""
            How can my people log in? | Which login methods do you support? | Do you have SSO and
            passkeys? | Can I sign in with OpenID Connect?
        """),
        topics=phrasings("login | single sign-on"),
    ),
    Fact(
        key="audit_log",
        answer="The audit log records who changed what and when: keys, roles, limits and every "
        "action of an operator across tenants.",
        key_phrases=("who changed what and when",),
        questions=phrasings("""
            is there an audit log | what does the audit log contain | can I see who changed a limit
            | who created this key | are admin actions recorded | how do I find out who did it |
            trace of changes | audit trail | are operators watched | history of changes | which
            actions are logged | log of administrative actions | compliance log | find out who
            altered something | do you keep an audit trail | are actions of administrators recorded
            | what goes into the audit log | who did what | which changes are recorded | who
            modified my quota | record of changes | can I see the history of a key | is there a log
            of who changed settings | track admin activity | accountability of operators | Can I
            find out who altered a quota | Are the actions of administrators recorded
        """),
        held_out=phrasings("""
            Where do I see who changed a setting? | What is recorded in the audit log? | Is there a
            record of what admins did? | Can you tell who deleted a key?
        """),
        topics=phrasings("the audit log | auditing"),
    ),
    Fact(
        key="policy_snapshot",
        answer="The policy snapshot is a copy in Redis of keys, tiers and limits; the doors "
        "check requests against it, so they work while PostgreSQL is down.",
        key_phrases=("copy in Redis of keys",),
        questions=phrasings("""
            what is the policy snapshot | where do the doors look up keys | how does the gateway
            check a key | what is a policy snapshot for | how can the gateway work without the
            database | how are keys checked so quickly | why is there a copy of the policy in Redis
            | what does the gateway know about tenants | does each request query the database | key
            check without PostgreSQL | what's in the policy snapshot | how are keys verified without
            the database | why copy policy into Redis | against what is a key checked | snapshot of
            the policy | what do the doors read | where does the gateway get limits from | policy in
            Redis | how does a door validate a key | verify a key when the database is offline |
            what is copied from PostgreSQL to Redis | policy copy | What does the snapshot of the
            policy hold | How are API keys verified without touching the database | Why do you copy
            policy into Redis | Against what does the door check a key
        """),
        held_out=phrasings("""
            I saw a policy snapshot mentioned, what would that be? | How can keys be checked when
            the database is away? | Which data is in the policy snapshot? | Why does the gateway
            need a snapshot?
        """),
        topics=phrasings("the policy snapshot | the snapshot"),
    ),
    Fact(
        key="unavailable",
        answer="A 503 means that Penstock cannot decide or serve right now, for instance because "
        "no policy snapshot exists yet. It is never disguised as a 401; try again soon.",
        key_phrases=("never disguised as a 401",),
        questions=phrasings("""
            what does a 503 mean | why do I get a 503 | service unavailable error | what if there is
            no policy snapshot | what happens when the snapshot is missing | error 503 | why is the
            service unavailable | what is returned when no snapshot exists | 503 or 401 | the API
            says unavailable | what status is sent before the policy is loaded | I'm getting 503 |
            when do you answer service unavailable | status code without a snapshot | snapshot is
            not there | what's wrong when I see 503 | the service says unavailable | what happens
            before a snapshot exists | missing policy snapshot | HTTP 503 | why 503 and not 401 |
            API temporarily unavailable | reason for a 503 | I'm getting 503, what's wrong | What
            happens if the policy snapshot isn't there | When does the API answer "service
            unavailable" | Which status code do I see without a snapshot
        """),
        held_out=phrasings("""
            What is the meaning of status 503? | Why does the service return 503? | The API returned
            service unavailable, why? | What do I get while no policy snapshot exists?
        """),
    ),
)
