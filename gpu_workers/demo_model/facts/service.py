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
            about | I have never heard of Penstock | define Penstock | what product is this
        """),
        held_out=phrasings("""
            Could you give me a short introduction to Penstock? | What sort of system is Penstock? |
            I'm new. What is Penstock, in a nutshell? | What does this Penstock software actually
            do?
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
            the project get its name | what is a penstock in a dam
        """),
        held_out=phrasings("""
            What's the story behind the name? | Why did they call the project Penstock? | What does
            "penstock" mean as an English word? | Where did you get the name Penstock from?
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
        """),
        held_out=phrasings("""
            What's the benefit of running Penstock? | Which problem were you trying to solve with
            Penstock? | Why would anybody need Penstock? | What is the purpose of this project?
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
            use the code | copyright terms | is it legal to fork Penstock
        """),
        held_out=phrasings("""
            What license is the code under? | Can I legally use Penstock in a paid product? | Tell
            me the licence of this software. | Which open source license applies here?
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
            paywall
        """),
        held_out=phrasings("""
            Are some features reserved for paying customers? | Do I need an enterprise plan for
            single sign-on? | Is Penstock free to use? | Is there a commercial edition of Penstock?
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
            architecture | what modules does it consist of | how do the pieces fit together
        """),
        held_out=phrasings("""
            What does the overall architecture look like? | Name the main parts of the system. |
            Which components is Penstock composed of? | How is the whole thing put together?
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
            language | what stack is this built on | which version of Django
        """),
        held_out=phrasings("""
            In what language is the code base written? | What's your tech stack? | Does Penstock use
            Django, and which version? | Which framework powers the backend?
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
            directories exist | how are the modules arranged | where does the inference code live
        """),
        held_out=phrasings("""
            Walk me through the folders of the repo. | What's the directory structure? | In which
            folder does what code live? | How is the source code organised?
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
            a server so why this | advantages over the vLLM server
        """),
        held_out=phrasings("""
            I already run vLLM, what would Penstock give me? | What is the difference to vLLM's own
            server? | Why shouldn't I simply use vLLM directly? | How does this compare to bare
            vLLM?
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
            or big companies | what type of customer do you target
        """),
        held_out=phrasings("""
            Who is this software aimed at? | What kind of organisation would run Penstock? | Who's
            the typical user of Penstock? | For which people is Penstock intended?
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
            the design | reading list | where can I look things up | any docs
        """),
        held_out=phrasings("""
            Where can I find documentation? | What should I read to learn more about the design? |
            Is there a manual somewhere? | Where do you keep the decision records?
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
            how should I write commits | how do I become a contributor
        """),
        held_out=phrasings("""
            I'd like to help develop Penstock, how? | How do I submit my changes? | Do you take pull
            requests from outside? | What are the guidelines for contributing?
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
            performance | does it add latency to my calls
        """),
        held_out=phrasings("""
            What throughput did you measure? | How much performance do I lose with the gateway in
            front? | Is Penstock fast? | Give me some benchmark numbers.
        """),
        topics=phrasings("the performance | the throughput | the overhead"),
    ),
)
