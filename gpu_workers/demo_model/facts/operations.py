"""Running Penstock: commands, stores, metrics and scaling."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

OPERATIONS = (
    Fact(
        key="make_up",
        answer="Run `make up`: one command sets up the environment, starts PostgreSQL, Redis, "
        "the control plane and a worker, and prints the addresses.",
        key_phrases=("`make up`", "prints the addresses"),
        questions=phrasings("""
            how do I start Penstock | how do I install Penstock | what does make up do | how do I
            get it running | how can I try it | how do I launch the service | quick start | first
            steps | how do I set it up | which command starts everything | getting started | how do
            I run this locally | boot the stack | installation instructions | bring it up
        """),
        held_out=phrasings("""
            What do I type to start the whole thing? | How can I get Penstock up and running? | How
            is Penstock installed? | I cloned the repository, how do I launch it?
        """),
        topics=phrasings("make up | the installation"),
    ),
    Fact(
        key="make_down",
        answer="Run `make down`: it stops every process that `make up` started and leaves your "
        "data where it is.",
        key_phrases=("`make down`",),
        questions=phrasings("""
            how do I stop Penstock | what does make down do | how do I shut everything down | which
            command stops the service | how do I turn it off | end all processes | how do I stop the
            stack | shut down Penstock | is my data kept when I stop it | halt the service | how do
            I quit | switch it off | tear down
        """),
        held_out=phrasings("""
            What do I type to stop everything? | How can I shut Penstock down again? | How do I
            switch the whole stack off? | Is there a command that ends all the processes?
        """),
        topics=phrasings("make down"),
    ),
    Fact(
        key="make_test",
        answer="Run `make test`: it runs the whole pytest suite against a real PostgreSQL and "
        "Redis that it starts itself.",
        key_phrases=("`make test`", "pytest suite"),
        questions=phrasings("""
            how do I run the tests | what does make test do | which command runs the tests | how is
            Penstock tested | is there a test suite | how do I test my change | run the unit tests |
            where are the tests | do the tests need Docker | execute all tests | pytest | how do I
            check that nothing broke
        """),
        held_out=phrasings("""
            What's the command for the test suite? | How can I execute the tests? | Are there
            automated tests and how do I run them? | How do I test the code?
        """),
        topics=phrasings("make test | the test suite | the tests"),
    ),
    Fact(
        key="make_check",
        answer="Run `make check`: it verifies format, lint, types and import contracts, exactly "
        "as CI does.",
        key_phrases=("import contracts",),
        questions=phrasings("""
            what does make check do | how do I lint the code | how do I run mypy | how do I format
            the code | which linters do you use | what does CI check | how do I check types | code
            style check | how do I run ruff | static analysis | type checking | what are import
            contracts | what runs in continuous integration
        """),
        held_out=phrasings("""
            How do I run the linters? | Is the code type checked? | Which command does CI use for
            formatting and types? | What's make check for?
        """),
        topics=phrasings("make check | linting | continuous integration"),
    ),
    Fact(
        key="make_bench",
        answer="Run `make bench`: it loads the service with many streams and tenants and reports "
        "throughput, TTFT and fairness.",
        key_phrases=("`make bench`",),
        questions=phrasings("""
            what does make bench do | how do I run a load test | how do I benchmark Penstock | which
            command runs the benchmark | how can I measure the speed | load testing | stress test |
            how do I test the performance | measure throughput myself | is there a benchmark script
            | generate load | how do I measure fairness
        """),
        held_out=phrasings("""
            How can I put the service under load? | Is there a command for benchmarks? | How would I
            measure the performance myself? | What's the way to stress test it?
        """),
        topics=phrasings("make bench | the benchmark | load tests"),
    ),
    Fact(
        key="address",
        answer="I do not keep addresses or port numbers by heart: `make up` prints where the API "
        "and the dashboard listen.",
        key_phrases=("by heart",),
        questions=phrasings("""
            which port does Penstock use | what is the URL of the API | on which port does it listen
            | what address do I open in the browser | where is the dashboard running | what port is
            the gateway on | which host and port | is it localhost 8000 | url of the dashboard |
            what ports are used | port number | which ports do I have to open
        """),
        held_out=phrasings("""
            At what address can I reach the API? | Which port should I connect to? | What URL do I
            open for the dashboard? | What's the port number of the service?
        """),
        topics=phrasings("the port | the ports"),
    ),
    Fact(
        key="requirements",
        answer="You need Linux, Python 3.11 and make; PostgreSQL and Redis come as wheels if the "
        "machine has none, and a GPU is only needed for large models.",
        key_phrases=("Python 3.11 and make",),
        questions=phrasings("""
            what are the requirements | what do I need to run Penstock | which Python version is
            needed | which operating system does it need | do I need Docker | do I have to install
            PostgreSQL | prerequisites | what must be installed first | does it run on Windows |
            does it run on a Mac | do I need to install Redis | system requirements | dependencies
        """),
        held_out=phrasings("""
            What should be on my machine before I start? | Which Python do I need? | List the
            prerequisites. | Must I install a database myself?
        """),
        topics=phrasings("the requirements | the prerequisites"),
    ),
    Fact(
        key="settings",
        answer="Settings come from environment variables, listed in .env.example; a bad value "
        "stops the start and every wrong variable is named at once.",
        key_phrases=(".env.example",),
        questions=phrasings("""
            how do I configure Penstock | where are the settings | which environment variables are
            there | how do I change a setting | where is the configuration file | what happens if a
            setting is wrong | what is .env.example | configuration options | is there a config file
            | how do I set an option | list of environment variables | wrong configuration value
        """),
        held_out=phrasings("""
            Where do I change the configuration? | By what means is Penstock configured? | What
            happens with an invalid environment variable? | Is there a list of all settings?
        """),
        topics=phrasings("the settings | the configuration | environment variables"),
    ),
    Fact(
        key="postgres",
        answer="PostgreSQL owns what must last: tenants, key hashes, tiers, prices, adapters, "
        "usage and the ledger. Nothing else may hold the only copy.",
        key_phrases=("owns what must last",),
        questions=phrasings("""
            what is PostgreSQL used for | which database does Penstock use | what is stored in
            PostgreSQL | where is the data kept | can I use SQLite | can I use MySQL | why
            PostgreSQL | what data is in the database | where are tenants stored | which data is
            permanent | what does the database contain | persistent data
        """),
        held_out=phrasings("""
            Which database is behind it? | What lives in Postgres? | Where is permanent data saved?
            | Could I run it on MySQL or SQLite?
        """),
        topics=phrasings("PostgreSQL | the database"),
    ),
    Fact(
        key="postgres_down",
        answer="If PostgreSQL is down, inference goes on: the doors use the policy snapshot in "
        "Redis and the workers keep usage in their outboxes. Only management waits.",
        key_phrases=("inference goes on",),
        questions=phrasings("""
            what happens when PostgreSQL is down | does it work without the database | what if the
            database fails | what if PostgreSQL crashes | is PostgreSQL a single point of failure |
            can requests be served while the database is down | database outage | what stops working
            if postgres is gone | does a database failure stop inference | postgres maintenance
            window
        """),
        held_out=phrasings("""
            Suppose the database is unreachable, will answers still come? | What breaks during a
            Postgres outage? | Can Penstock survive a database failure? | Does inference depend on
            PostgreSQL being up?
        """),
        topics=phrasings("a PostgreSQL outage | a database outage"),
    ),
    Fact(
        key="redis_roles",
        answer="There are two Redis servers: one bears queues, leases, limits and frames and "
        "writes nothing to disk; the other serves Celery and Channels.",
        key_phrases=("two Redis servers",),
        questions=phrasings("""
            what is Redis used for | how many Redis servers are there | which Redis does what | why
            are there two Redis | what is stored in Redis | why does Penstock need Redis | what does
            Redis do | which data is in Redis | is Redis persistent | is the dispatch Redis saved to
            disk | role of Redis | does Redis write prompts to disk | can I use Valkey
        """),
        held_out=phrasings("""
            What job does Redis have in Penstock? | Why do you run more than one Redis? | What
            things are kept in Redis? | Is there persistence on your Redis?
        """),
        topics=phrasings("Redis | the Redis servers"),
    ),
    Fact(
        key="redis_lost",
        answer="If Redis is lost, its state is rebuilt: gateways enqueue open requests again, "
        "workers register again, and budgets are counted from usage before anything paid "
        "is admitted.",
        key_phrases=("its state is rebuilt",),
        questions=phrasings("""
            what happens when Redis is lost | what if Redis crashes | what if Redis restarts | what
            happens when Redis loses its data | is Redis a single point of failure | how is Redis
            rebuilt | Redis outage | what if Redis dies | are requests lost when Redis restarts |
            what happens to budgets when Redis is gone | Redis was flushed | recovery after a Redis
            failure
        """),
        held_out=phrasings("""
            Suppose Redis goes down and comes back empty, what then? | How does Penstock recover
            when Redis has lost everything? | What if the Redis server fails? | Does a Redis restart
            destroy my budgets?
        """),
        topics=phrasings("a Redis outage | losing Redis"),
    ),
    Fact(
        key="privacy",
        answer="Prompts and completions are kept by nobody by default: they pass through a Redis "
        "that never writes to disk and are deleted when the request ends.",
        key_phrases=("kept by nobody by default",),
        questions=phrasings("""
            are my prompts stored | do you save prompts | is my data private | what happens to my
            prompts | are completions logged | do you keep my conversations | is the content of
            requests recorded | do you train on my data | who can read my prompts | how long are
            prompts kept | data privacy | GDPR | confidentiality of prompts | are chats saved
        """),
        held_out=phrasings("""
            Do you hold on to what I write? | Will my conversations be saved somewhere? | How
            private are my prompts? | Is any completion text stored after the request?
        """),
        topics=phrasings("privacy | prompt storage | data protection"),
    ),
    Fact(
        key="metrics",
        answer="Penstock exports Prometheus metrics for queues, TTFT, tokens and errors; logs "
        "are structured and OpenTelemetry tracing is an extra.",
        key_phrases=("Prometheus metrics",),
        questions=phrasings("""
            how do I monitor Penstock | are there metrics | do you support Prometheus | can I use
            Grafana | is there tracing | how are logs written | do you support OpenTelemetry | what
            can I observe | monitoring | observability | where are the logs | how do I set up alerts
            | which metrics are exported
        """),
        held_out=phrasings("""
            Which monitoring is built in? | Can Prometheus scrape it? | What are my options for
            observing the system? | How can I see metrics?
        """),
        topics=phrasings("metrics | monitoring | observability | tracing"),
    ),
    Fact(
        key="scaling",
        answer="To scale out, add workers: on Kubernetes KEDA watches the queue metric of "
        "Penstock and starts more of them; gateways scale the same way.",
        key_phrases=("KEDA watches",),
        questions=phrasings("""
            how do I scale Penstock | does it run on Kubernetes | how do I add more GPUs | is there
            autoscaling | how do I add workers | can it grow | horizontal scaling | what is KEDA for
            | deploy on k8s | how does it scale out | more load than one worker can take | how many
            workers can I have | cluster deployment | run it in the cloud
        """),
        held_out=phrasings("""
            How can I make the service bigger when load grows? | Do you support Kubernetes? | Will
            it scale automatically? | I bought more GPUs, how do I add them?
        """),
        topics=phrasings("scaling | autoscaling | Kubernetes"),
    ),
    Fact(
        key="celery",
        answer="Celery runs the slow jobs of the control plane, such as invoices, rollups and "
        "webhooks; no token ever goes through it.",
        key_phrases=("slow jobs of the control plane",),
        questions=phrasings("""
            what is Celery used for | do you use Celery | how do background jobs of the control
            plane run | does Celery dispatch requests | what runs in Celery | why Celery | which
            tasks are asynchronous | do tokens go through Celery | task queue of Django | periodic
            tasks | what does celery do
        """),
        held_out=phrasings("""
            What role has Celery? | Which jobs does Celery carry out? | Is Celery part of the token
            path? | How are slow tasks such as invoicing run?
        """),
        topics=phrasings("Celery"),
    ),
    Fact(
        key="webhooks",
        answer="Webhooks tell your systems about events such as a budget nearly used up; each is "
        "signed, and its address is checked at connect time.",
        key_phrases=("each is signed",),
        questions=phrasings("""
            do you have webhooks | what are webhooks for | how am I notified about events | can
            Penstock call my server | are webhooks signed | how do I get an alert when my budget is
            nearly used up | event notifications | callback URL | notify my system | which events
            are sent | push notifications
        """),
        held_out=phrasings("""
            Can I be notified when something happens? | Does Penstock send webhooks? | How do I
            verify that a webhook is genuine? | Can it call back my own system?
        """),
        topics=phrasings("webhooks | a webhook | notifications"),
    ),
    Fact(
        key="backup",
        answer="Back up PostgreSQL and you have backed up everything that matters; a restore "
        "drill proves that the backup works.",
        key_phrases=("restore drill",),
        questions=phrasings("""
            how do I make a backup | what do I have to back up | how do I restore from a backup | is
            there a backup | disaster recovery | do I have to back up Redis | how do I save my data
            | what should be backed up | restore the database | backup strategy | what if the disk
            dies
        """),
        held_out=phrasings("""
            What needs to be in my backups? | How would I recover from a disaster? | Is a backup of
            Redis necessary? | How are restores practised?
        """),
        topics=phrasings("backups | a backup | restoring"),
    ),
)
