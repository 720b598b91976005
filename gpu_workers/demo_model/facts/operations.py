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
            I run this locally | boot the stack | installation instructions | bring it up | start
            the whole thing | get Penstock running | I cloned the repo, what next | install it | how
            to launch | set everything up | start all services | begin using it | run Penstock |
            deploy it on my machine | What do I type to start the whole thing | How can I get
            Penstock up and running | How is Penstock installed | I cloned the repository, how do I
            launch it
        """),
        held_out=phrasings("""
            How do I start it? | How can I install and run Penstock? | Which command brings Penstock
            up? | What does make up start?
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
            I quit | switch it off | tear down | stop everything | shut Penstock down | switch off
            the stack | stop all the processes | close everything | how to stop | turn Penstock off
            | terminate the service | What do I type to stop everything | How can I shut Penstock
            down again | How do I switch the whole stack off | Is there a command that ends all the
            processes
        """),
        held_out=phrasings("""
            How do I stop it again? | Which command shuts Penstock down? | What happens on make
            down? | How can I end all of Penstock's processes?
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
            check that nothing broke | execute the tests | command for the tests | automated tests |
            run pytest | test the code | are there tests | how do I know my change works | What's
            the command for the test suite | How can I execute the tests | Are there automated tests
            and how do I run them | How do I test the code
        """),
        held_out=phrasings("""
            How can I run all the tests? | Which command starts the test suite? | What will happen
            if I type make test? | How do I execute the unit tests?
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
            contracts | what runs in continuous integration | run the linters | is the code type
            checked | format and lint | types and formatting | mypy and ruff | check the code style
            | quality checks | what does CI run | How do I run the linters | Which command does CI
            use for formatting and types | What's make check for
        """),
        held_out=phrasings("""
            Which command lints the code? | What is checked by make check? | How do I check
            formatting and types? | What does CI run on my code?
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
            | generate load | how do I measure fairness | put the service under load | command for
            benchmarks | stress the service | measure performance | simulate many users | load
            generator | run a benchmark | How can I put the service under load | Is there a command
            for benchmarks | How would I measure the performance myself | What's the way to stress
            test it
        """),
        held_out=phrasings("""
            Can I benchmark the service with one command? | What does make bench measure? | How can
            I load test Penstock? | Which command measures the performance?
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
            what ports are used | port number | which ports do I have to open | address of the API |
            port to connect to | URL for the dashboard | where can I reach it | IP and port |
            listening port | which URL | what host | At what address can I reach the API | Which
            port should I connect to | What URL do I open for the dashboard | What's the port number
            of the service
        """),
        held_out=phrasings("""
            What is the address of the dashboard? | On what port is the API? | Which URL should my
            client use? | Where does the API listen?
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
            does it run on a Mac | do I need to install Redis | system requirements | dependencies |
            what do I need first | which Python | what should be installed | list of prerequisites |
            is Docker necessary | operating system | software needed | hardware needed | supported
            platforms | What should be on my machine before I start | Which Python do I need | List
            the prerequisites | Must I install a database myself
        """),
        held_out=phrasings("""
            What do I need to install before Penstock? | Which version of Python is required? | What
            are the prerequisites for running it? | Does Penstock need Docker?
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
            | how do I set an option | list of environment variables | wrong configuration value |
            change the configuration | how is Penstock configured | invalid environment variable |
            list of all settings | where are options set | configuration variables | set an
            environment variable | bad configuration | Where do I change the configuration | By what
            means is Penstock configured | What happens with an invalid environment variable | Is
            there a list of all settings
        """),
        held_out=phrasings("""
            I want to set an option, where do I do that? | Where are the environment variables
            documented? | What if I set a wrong value in the configuration? | How do you configure
            this?
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
            permanent | what does the database contain | persistent data | what's in Postgres | the
            database behind it | permanent data | MySQL or SQLite | database used | where does the
            data live | role of PostgreSQL | what does Postgres keep | Which database is behind it |
            What lives in Postgres | Where is permanent data saved | Could I run it on MySQL or
            SQLite
        """),
        held_out=phrasings("""
            What do you keep in PostgreSQL? | Which database do I need? | Why do you use PostgreSQL?
            | Can Penstock run on SQLite?
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
            window | the database is unreachable | Postgres outage | survive a database failure |
            does inference need PostgreSQL | answers without a database | database offline | what
            breaks without Postgres | Suppose the database is unreachable, will answers still come |
            What breaks during a Postgres outage | Can Penstock survive a database failure | Does
            inference depend on PostgreSQL being up
        """),
        held_out=phrasings("""
            What if the database goes down? | Does Penstock still answer when PostgreSQL is down? |
            What happens during a database outage? | Can I do inference without PostgreSQL running?
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
            disk | role of Redis | does Redis write prompts to disk | can I use Valkey | more than
            one Redis | job of Redis | things kept in Redis | persistence of Redis | two Redis
            servers | is RDB or AOF on | Redis for what | what goes through Redis | What job does
            Redis have in Penstock | Why do you run more than one Redis | What things are kept in
            Redis | Is there persistence on your Redis
        """),
        held_out=phrasings("""
            What does Penstock use Redis for? | Why do I need two Redis servers? | What is kept in
            Redis? | Does Redis write anything to disk?
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
            failure | Redis comes back empty | Redis lost everything | the Redis server fails |
            Redis restart and budgets | recover from loss of Redis | Redis data is gone | Redis down
            | Suppose Redis goes down and comes back empty, what then | How does Penstock recover
            when Redis has lost everything | What if the Redis server fails | Does a Redis restart
            destroy my budgets
        """),
        held_out=phrasings("""
            What if Redis goes down? | What happens if Redis loses all data? | How is the state
            rebuilt after Redis was lost? | Redis crashed, what now?
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
            prompts kept | data privacy | GDPR | confidentiality of prompts | are chats saved | do
            you keep what I write | are conversations saved | how private are my prompts |
            completion text after the request | do you log my text | retention of prompts | can you
            read my chats | is my input used for training | Do you hold on to what I write | Will my
            conversations be saved somewhere | Is any completion text stored after the request
        """),
        held_out=phrasings("""
            Do you save what I ask? | Are prompts kept anywhere? | Who can see the text of my
            prompts? | What about privacy of my conversations?
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
            | which metrics are exported | what monitoring exists | Prometheus scrape | observe the
            system | see metrics | logging | traces | Grafana dashboards | health of the system |
            Which monitoring is built in | Can Prometheus scrape it | What are my options for
            observing the system | How can I see metrics
        """),
        held_out=phrasings("""
            Which metrics do you have? | How can I monitor the service? | Does it export metrics to
            Prometheus? | Is tracing with OpenTelemetry possible?
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
            workers can I have | cluster deployment | run it in the cloud | grow with load |
            Kubernetes support | automatic scaling | add GPUs I bought | bigger deployment | scale
            up | increase capacity | autoscale workers | How can I make the service bigger when load
            grows | Do you support Kubernetes | Will it scale automatically | I bought more GPUs,
            how do I add them
        """),
        held_out=phrasings("""
            My traffic has doubled, how do I get more capacity? | Can I deploy it on Kubernetes? |
            How do I add another GPU worker? | Does Penstock support autoscaling?
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
            tasks | what does celery do | role of Celery | jobs in Celery | background tasks | slow
            tasks | who makes invoices in the background | scheduled jobs | Celery workers | What
            role has Celery | Which jobs does Celery carry out | Is Celery part of the token path |
            How are slow tasks such as invoicing run
        """),
        held_out=phrasings("""
            What kind of work do you give to Celery? | Which work is done by Celery? | Why is Celery
            in the stack? | Do requests go through Celery?
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
            are sent | push notifications | notify me when something happens | verify a webhook |
            call back my system | send events to my server | signed webhook | event callbacks |
            budget alert | Can I be notified when something happens | Does Penstock send webhooks |
            How do I verify that a webhook is genuine | Can it call back my own system
        """),
        held_out=phrasings("""
            Are there webhooks? | How can my server be told about events? | How would I recognise a
            real webhook of yours? | What do webhooks tell me?
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
            dies | what belongs in a backup | recover after a disaster | how are restores practised
            | backing up | save everything | restoring data | back up the database | What needs to
            be in my backups | How would I recover from a disaster | Is a backup of Redis necessary
        """),
        held_out=phrasings("""
            How do I back up Penstock? | What must I back up? | How do I restore everything after a
            disaster? | Which data should be in a backup?
        """),
        topics=phrasings("backups | a backup | restoring"),
    ),
)
