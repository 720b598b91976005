"""What Penstock is, for whom, and where its parts and papers lie."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

SERVICE = (
    Fact(
        key="penstock",
        answer="Penstock is an open-source, multi-tenant LLM inference service: it turns a rack "
        "of GPUs into an API that many customers can share fairly.",
        key_phrases=("multi-tenant LLM inference service",),
        questions=phrasings("""
            what is Penstock | what does Penstock do | tell me about Penstock | explain Penstock |
            describe this project | what is this service | what kind of software is Penstock | give
            me a summary of Penstock | Penstock in one sentence | what am I looking at here |
            introduce Penstock to me | what is this thing | so what's Penstock | what is Penstock
            about | I have never heard of Penstock | define Penstock | what product is this | what's
            Penstock all about | I want an intro to Penstock | give me the elevator pitch | what
            would you say Penstock is | kindly introduce the software | what system is this | brief
            introduction please | what kind of project is it | Penstock, what's that | what is the
            main idea of Penstock | short description of the service | explain in a nutshell what
            this is | what does the software do | Could you give me a short introduction to Penstock
            | What sort of system is Penstock | I'm new. What is Penstock, in a nutshell | What does
            this Penstock software actually do
        """),
        held_out=phrasings("""
            Hey, what is this Penstock thing everybody talks about? | Summarise Penstock for
            somebody who has never seen it. | What would I be installing if I installed Penstock? |
            Tell my manager in two lines what Penstock is.
        """),
    ),
    Fact(
        key="name",
        answer="The name is borrowed from hydropower: a penstock is the gated pipe that leads "
        "water to the turbines. Here the water is requests and the turbines are GPUs.",
        key_phrases=("gated pipe", "turbines"),
        questions=phrasings("""
            why is it called Penstock | where does the name Penstock come from | what does the word
            penstock mean | why the name Penstock | origin of the name | what is a penstock in real
            life | who chose the name and why | why did you name it Penstock | etymology of Penstock
            | what does the name stand for | is the name a metaphor | meaning of the name | how did
            the project get its name | what is a penstock in a dam | what's behind the name | why
            Penstock and not another name | reason for the name Penstock | is penstock an English
            word | explain the name | how did you come up with the name | what's the history of the
            name | penstock definition in the dictionary | who called it Penstock | the name sounds
            odd, why | what is the idea of calling it that | What's the story behind the name | Why
            did they call the project Penstock | What does "penstock" mean as an English word |
            Where did you get the name Penstock from
        """),
        held_out=phrasings("""
            Is there a reason you named it Penstock? | What do dams have to do with the name of this
            project? | Where did that strange name come from? | What's a penstock when it isn't
            software?
        """),
    ),
    Fact(
        key="purpose",
        answer="Penstock solves sharing: without it one busy customer can starve all others on "
        "the same GPUs. It decides who gets through the gate, when, and what it cost.",
        key_phrases=("who gets through the gate",),
        questions=phrasings("""
            what problem does Penstock solve | why would I use Penstock | why does Penstock exist |
            what is the point of Penstock | what is Penstock good for | why should I choose Penstock
            | what are the benefits of Penstock | what is the goal of the project | motivation for
            Penstock | why do I need this | what advantage does Penstock give me | what is it useful
            for | what need does it meet | why was Penstock built | the reason for building Penstock
            | what is Penstock trying to achieve | what's the benefit | what's the purpose | which
            problem does it address | what good does it do me | why would somebody want Penstock |
            why do people run Penstock | what is the aim | why bother with Penstock | what trouble
            does it take away | for what do I need Penstock | sell me on Penstock | what would I
            gain | What's the benefit of running Penstock | Which problem were you trying to solve
            with Penstock | Why would anybody need Penstock | What is the purpose of this project
        """),
        held_out=phrasings("""
            What is the reason Penstock exists at all? | What problem goes away once I use Penstock?
            | Convince me: why would we want Penstock? | What was Penstock made for?
        """),
    ),
    Fact(
        key="licence",
        answer="Penstock is released under the Apache License 2.0 (Apache-2.0), so you may use, "
        "change and redistribute it, also commercially.",
        key_phrases=("Apache-2.0",),
        questions=phrasings("""
            which licence does Penstock have | what is the license | under what license is Penstock
            released | is it Apache licensed | may I use Penstock commercially | can I use it in a
            commercial product | is it MIT or GPL | licence terms | how is Penstock licensed | am I
            allowed to modify and redistribute it | what are the license conditions | can my company
            use the code | copyright terms | is it legal to fork Penstock | what's the licence of
            the source code | which license applies | tell me about licensing | what license do you
            use | is commercial use legal | may I sell a product that contains it | legal terms of
            use | open source licence name | BSD, MIT or Apache | can I redistribute the software |
            permissive license or copyleft | may I change the code | What license is the code under
            | Can I legally use Penstock in a paid product | Tell me the licence of this software |
            Which open source license applies here
        """),
        held_out=phrasings("""
            Under which terms can we use the code? | Is the licence okay for a commercial company? |
            Which license did you put Penstock under? | Would the license let me ship a modified
            version?
        """),
        topics=phrasings("the licence | Penstock's license"),
    ),
    Fact(
        key="editions",
        answer="There is one edition and it is open source: single sign-on, roles and the audit "
        "log are part of it, not of a paid version.",
        key_phrases=("one edition",),
        questions=phrasings("""
            is there a paid version | is there an enterprise edition | is Penstock open source | is
            Penstock free | what does Penstock cost to use | which features are paid | is there a
            pro plan | do I have to buy a licence | is SSO an enterprise feature | is there a
            premium edition | how much does Penstock itself cost | is it free of charge | community
            or enterprise edition | do you sell a commercial edition | are any features behind a
            paywall | are some features only for paying users | do you reserve features for
            enterprise customers | is everything open source | free version and paid version | is it
            a freemium product | do I need to pay for SSO | what's in the enterprise plan |
            commercial version | how many editions are there | must I purchase something | any
            hidden cost | can I get all features without paying | Are some features reserved for
            paying customers | Do I need an enterprise plan for single sign-on | Is Penstock free to
            use | Is there a commercial edition of Penstock
        """),
        held_out=phrasings("""
            Which features do I only get if I pay? | Is there something like a paid enterprise
            version? | So the free version has everything? | Does SSO cost extra?
        """),
    ),
    Fact(
        key="components",
        answer="Penstock has three main parts: a Django control plane, dispatch through Redis, "
        "and GPU workers that run vLLM. PostgreSQL keeps everything that must last.",
        key_phrases=("three main parts",),
        questions=phrasings("""
            what are the parts of Penstock | which components does Penstock have | how is Penstock
            built | describe the architecture | what is Penstock made of | what are the building
            blocks | overview of the architecture | which pieces make up the system | how is the
            system structured | what are the main components | high level architecture | show me the
            architecture | what modules does it consist of | how do the pieces fit together | name
            the components | what does the system consist of | how's the whole system put together |
            list the main pieces | what's the architecture like | tell me about the overall
            structure | what are its parts | which subsystems exist | explain the architecture of
            Penstock | what is it composed of | a sketch of the architecture | design overview |
            What does the overall architecture look like | Name the main parts of the system | Which
            components is Penstock composed of | How is the whole thing put together
        """),
        held_out=phrasings("""
            What are the major building blocks of the architecture? | Draw me a rough picture of how
            Penstock is built. | Which pieces is the system made of? | From which parts is Penstock
            assembled?
        """),
        topics=phrasings("the architecture | the components | the design of the system"),
    ),
    Fact(
        key="language",
        answer="Penstock is written in Python with Django 5.2 LTS; the atomic Redis steps are "
        "small Lua functions.",
        key_phrases=("Django 5.2 LTS",),
        questions=phrasings("""
            which programming language is Penstock written in | what language does Penstock use |
            which framework does it use | is it written in Python | is it Go or Rust | which Django
            version do you use | what is the tech stack | which web framework | what technologies
            are used | what is the code written in | do you use FastAPI or Django | implementation
            language | what stack is this built on | which version of Django | which language is the
            backend written in | what framework is behind it | is the backend Django | what
            programming languages are in the code base | what was it coded in | Python or Java |
            which frameworks and languages do you use | software stack | technology behind Penstock
            | does it use Python | what powers the control plane | is there Lua or Python in it | In
            what language is the code base written | What's your tech stack | Does Penstock use
            Django, and which version | Which framework powers the backend
        """),
        held_out=phrasings("""
            What is Penstock programmed in? | Are you using Django or something else for the web
            part? | Tell me the technologies behind this. | Which language would I have to know to
            hack on it?
        """),
    ),
    Fact(
        key="folders",
        answer="The code lives in a few rooms: control_plane is the Django project, tenants says "
        "who may call, inference says what is called, and gpu_workers runs on the GPU "
        "nodes.",
        key_phrases=("few rooms",),
        questions=phrasings("""
            how is the repository organised | what folders are there | where is the code | explain
            the directory layout | repository structure | which packages are in the repository | how
            is the source tree laid out | what is in the gpu_workers folder | where do I find the
            Django project | what does the tenants package contain | layout of the code | which
            directories exist | how are the modules arranged | where does the inference code live |
            how is the code organised | show me the structure of the repo | guide me through the
            source tree | what's in which directory | explain the folders | where is what in the
            repository | which folder holds what | what lies in the inference folder | how is the
            code base structured | tree of the project | the rooms of the house | I cloned it, what
            are these directories | Walk me through the folders of the repo | What's the directory
            structure | In which folder does what code live | How is the source code organised
        """),
        held_out=phrasings("""
            Where in the repository do I look for the tenant code? | Can you explain what each
            directory holds? | I opened the source tree and I'm lost, how is it arranged? | How did
            you organise the code?
        """),
        topics=phrasings("the repository layout | the folder structure"),
    ),
    Fact(
        key="versus_vllm",
        answer="vLLM's own server answers first come, first served and knows no customers. "
        "Penstock keeps vLLM as the engine and adds tenants, limits, fair scheduling and "
        "bills.",
        key_phrases=("keeps vLLM as the engine",),
        questions=phrasings("""
            how is Penstock different from vLLM | why not just use vLLM | Penstock versus vLLM |
            compare Penstock with vLLM | what does Penstock add to vLLM | isn't vLLM enough | vLLM
            alone or Penstock | difference between Penstock and vLLM | why not run plain vLLM serve
            | does Penstock replace vLLM | what can Penstock do that vLLM cannot | vLLM already has
            a server so why this | advantages over the vLLM server | what's the difference between
            this and vLLM | I use vLLM already, why Penstock | why put Penstock in front of vLLM |
            couldn't I use vLLM on its own | what do I gain over vLLM | is it better than vLLM |
            vLLM server compared with Penstock | how do they differ, vLLM and Penstock | would plain
            vLLM do the job | what's missing in vLLM | pros over bare vLLM | is Penstock just a
            wrapper of vLLM | I already run vLLM, what would Penstock give me | What is the
            difference to vLLM's own server | Why shouldn't I simply use vLLM directly | How does
            this compare to bare vLLM
        """),
        held_out=phrasings("""
            Why would I need Penstock on top of vLLM? | Penstock or vLLM, what's the difference? |
            vLLM has an API server already, so what does Penstock bring? | How do Penstock and vLLM
            compare?
        """),
    ),
    Fact(
        key="audience",
        answer="Penstock is for teams that own GPUs and serve language models to several "
        "customers, departments or products at once.",
        key_phrases=("teams that own GPUs",),
        questions=phrasings("""
            who is Penstock for | who should use Penstock | who are the users of Penstock | target
            audience | which companies need Penstock | is Penstock for me | what kind of team would
            run this | who is the intended user | for whom was this made | typical users | who
            benefits from Penstock | which organisations is it meant for | is it made for startups
            or big companies | what type of customer do you target | who is it aimed at | which
            people use it | for what kind of organisation is it | who would run this | what sort of
            company needs it | who is supposed to use this software | the ideal user | what is the
            typical user like | for which teams is it intended | is it for hobbyists | who needs
            such a thing | what customers is it designed for | Who is this software aimed at | What
            kind of organisation would run Penstock | Who's the typical user of Penstock | For which
            people is Penstock intended
        """),
        held_out=phrasings("""
            Who would want to run Penstock? | Which kind of company is Penstock made for? | Is
            Penstock intended for teams like mine? | Who do you expect to use it?
        """),
    ),
    Fact(
        key="documentation",
        answer="Start with README.md, then read ARCHITECTURE.md for the design. Decisions with "
        "their reasons are in docs/adr, and changes for users are in CHANGELOG.md.",
        key_phrases=("README.md", "docs/adr"),
        questions=phrasings("""
            where is the documentation | where can I read more | are there docs | where do I find
            the manual | how do I learn more | which document should I read first | is there a guide
            | where are design decisions recorded | what is an ADR | where is the changelog | what
            changed in the last release | where is the handbook | is there a written explanation of
            the design | reading list | where can I look things up | any docs | where do I find docs
            | show me the documentation | what should I read first | where are the records of
            decisions | how do I learn about the design | is there a manual or a handbook | which
            files explain the project | where's the README | where can I study the design | more
            reading material please | link to the docs | further information | Where can I find
            documentation | What should I read to learn more about the design | Is there a manual
            somewhere | Where do you keep the decision records
        """),
        held_out=phrasings("""
            Are there any docs I can read? | Which file should a new developer read first? | Where
            did you write down why things were decided? | I'd like to read about the design, where
            do I look?
        """),
        topics=phrasings("the documentation"),
    ),
    Fact(
        key="contribute",
        answer="To contribute, read CONTRIBUTING.md, keep one idea per commit with its tests, "
        "and run `make check` and `make test` before you send a pull request.",
        key_phrases=("CONTRIBUTING.md", "pull request"),
        questions=phrasings("""
            how can I contribute | how do I send a patch | can I help with the project | how do I
            open a pull request | contribution guidelines | I want to contribute code | what are the
            rules for contributors | how do I submit a change | do you accept contributions | how
            can I join the development | I fixed a bug, what now | what do you expect of a commit |
            how should I write commits | how do I become a contributor | I'd like to contribute |
            how can I help develop it | can outsiders send pull requests | guidelines for
            contributing | how does one submit changes | what must I do before a pull request | do
            you welcome patches | I have an improvement, how do I hand it in | how do I take part in
            the project | developer guidelines | may I work on Penstock | where do I send my patch |
            I'd like to help develop Penstock, how | How do I submit my changes | Do you take pull
            requests from outside | What are the guidelines for contributing
        """),
        held_out=phrasings("""
            How would I go about contributing a fix? | I wrote a patch, how do I get it in? | What
            are the rules for sending you a pull request? | Can strangers contribute to Penstock?
        """),
    ),
    Fact(
        key="speed",
        answer="The gateway is built to stay cheap: on two CPU cores a first version of it "
        "streamed 5,400 tokens per second at 64 streams, against 4,434 for vLLM's own "
        "server.",
        key_phrases=("5,400 tokens per second",),
        questions=phrasings("""
            how fast is Penstock | what is the throughput | how many tokens per second can it do |
            performance figures | is Penstock slow | how much overhead does Penstock add | show me
            benchmark results | what did you measure | does the gateway slow things down | is it
            faster than vLLM's server | how quick is the service | tokens per second | what about
            performance | does it add latency to my calls | is it fast | give me numbers on
            performance | what speed can I expect | how much performance is lost | how costly is the
            gateway | did you benchmark it | what throughput do you reach | benchmark figures |
            speed compared with vLLM | how many tokens a second | measured throughput | does the
            gateway cost performance | What throughput did you measure | How much performance do I
            lose with the gateway in front | Is Penstock fast | Give me some benchmark numbers
        """),
        held_out=phrasings("""
            How many tokens per second does Penstock manage? | What about its performance, is it
            slow? | Does adding Penstock make responses slower? | Do you have figures about
            throughput?
        """),
        topics=phrasings("the performance | the throughput | the overhead"),
    ),
)
