"""From the door to the finish, and what holds when something dies."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

LIFECYCLE = (
    Fact(
        key="lease",
        answer="A lease is a right that expires: a worker holds its requests only while its "
        "heartbeat renews the lease, with a time to live of 6 to 10 seconds.",
        key_phrases=("right that expires",),
        questions=phrasings("""
            what is a lease | what does lease mean | how long is a lease | why do workers have
            leases | what happens when a lease expires | when does a lease run out | who renews the
            lease | what is the time to live of a lease | how does a worker keep its requests | for
            how long does a worker own a request | worker lease | how long does a worker own a
            request | lease time | TTL of 6 to 10 seconds | renewing a lease | expired lease |
            worker did not renew | explain leases | temporary ownership | A worker holds something
            called a lease, what is that | How many seconds does a lease last | What is it that a
            worker holds on a request | What are leases needed for
        """),
        held_out=phrasings("""
            How long does a worker's lease last? | What does a lease give a worker? | What happens
            once a lease expires? | Why are there leases?
        """),
        topics=phrasings("a lease | leases"),
    ),
    Fact(
        key="heartbeat",
        answer="A heartbeat is the small message by which each worker and each gateway says "
        "every few seconds that it is still alive.",
        key_phrases=("still alive",),
        questions=phrasings("""
            what is a heartbeat | how do you know that a worker is alive | what is the heartbeat for
            | how is a dead worker noticed | how often do workers report | how do you detect a
            failed node | does the gateway have a heartbeat | liveness of workers | how is failure
            detected | what is failure detection | alive message | notice that a worker has died |
            sign of life | how are crashed nodes detected | liveness check | how does the system see
            a worker is gone | regular alive messages | worker stops responding, who notices | By
            what do you notice that a worker has died | What is the purpose of heartbeats | How is a
            crashed node detected | How does a worker show it's alive
        """),
        held_out=phrasings("""
            How do you find out that a worker is dead? | What does a heartbeat say? | Why do workers
            send heartbeats? | How do you know a worker is still running?
        """),
        topics=phrasings("a heartbeat | heartbeats | failure detection"),
    ),
    Fact(
        key="fencing_token",
        answer="A fencing token is the attempt number of a request: only the current attempt may "
        "finish it, so frames of a worker that was given up are dropped.",
        key_phrases=("attempt number of a request",),
        questions=phrasings("""
            what is a fencing token | what is fencing | what is the attempt number for | what if a
            dead worker comes back | how do you stop a zombie worker | what if two workers run the
            same request | how are stale frames dropped | what is a stale attempt | what protects
            against a worker that wakes up late | split brain | a paused worker returns | zombie
            worker | worker believed dead returns | number of the attempt | late frames from an old
            worker | two workers believe they own a request | reject stale results | protection
            against zombies | What do fencing tokens protect against | Suppose a worker presumed
            dead returns, what then | Why does each attempt have a number | How do you fence off a
            zombie
        """),
        held_out=phrasings("""
            What is fencing good for? | How do you deal with a worker that comes back from the dead?
            | What's the purpose of a fencing token? | How are frames of an old attempt rejected?
        """),
        topics=phrasings("a fencing token | fencing tokens | fencing"),
    ),
    Fact(
        key="worker_death",
        answer="When a worker dies its lease runs out and its requests go back to the head of "
        "their tenant's queue with the original deadline; another worker takes them.",
        key_phrases=("back to the head of their tenant's queue",),
        questions=phrasings("""
            what happens when a worker dies | what if a worker crashes | what happens if a GPU node
            fails | what if a machine goes down | is my request lost when a worker crashes | how do
            you handle worker failure | what happens to requests of a dead worker | what if a worker
            loses power | worker crash | kill -9 on a worker | what if the GPU breaks | node failure
            | does Penstock survive a crash of a worker | a worker goes down | GPU server fails |
            crash of one of the workers | recover from a dead worker | my request was on a machine
            that died | worker killed by the out of memory killer | power failure of a node | the
            worker process disappears | Suppose one of the workers crashes, what becomes of its
            requests | What if a GPU server suddenly fails | Are requests lost if a worker is killed
            | How does Penstock recover from a dead worker
        """),
        held_out=phrasings("""
            A worker just died, what happens to its requests? | What happens if a worker crashes? |
            My GPU node lost power, are its requests gone? | How do you cope with a worker failure?
        """),
        topics=phrasings("the death of a worker | a worker crash | worker failures"),
    ),
    Fact(
        key="replay",
        answer="If a worker dies after the first token, a new worker replays the token ids "
        "already delivered and goes on from there; where that would not be sound the "
        "client gets a typed error.",
        key_phrases=("replays the token ids already delivered",),
        questions=phrasings("""
            what if a worker dies in the middle of an answer | what is replay | what happens when a
            worker dies after the first token | can an answer continue on another worker | what if
            the worker crashes while it is streaming | how does a stream survive a crash | are
            delivered tokens repeated after a crash | is a half finished answer lost | continue a
            half written answer elsewhere | failover in mid stream | the stream was half done and
            the worker died | half of my answer is out and the worker dies | continue the stream on
            a different worker | will I get the same tokens twice after a crash | mid-answer crash |
            stream moves to another worker | resume generation after a crash | token ids are
            replayed | A worker fails with half of my answer already delivered, what now | How is a
            stream continued on a different worker | What does replaying mean | Does a crash in
            mid-stream repeat tokens I already have
        """),
        held_out=phrasings("""
            The worker died after some tokens were delivered, what happens? | How can an answer go
            on when its worker dies in the middle? | What is replayed after a crash? | Can a stream
            survive the death of its worker?
        """),
        topics=phrasings("replay | failover in mid stream"),
    ),
    Fact(
        key="attempts",
        answer="A request gets at most three attempts; each new attempt excludes the worker that "
        "failed, and after the third the client gets an error.",
        key_phrases=("at most three attempts",),
        questions=phrasings("""
            how many attempts does a request get | how often is a request retried | what is the
            retry limit | how many retries are there | what if a request fails again and again |
            does Penstock retry for ever | maximum number of attempts | what if every worker crashes
            on my request | poison request | number of tries | when do you give up on a request |
            how many times is a request tried | stop retrying | limit on retries | third attempt
            failed | a request that kills every worker | number of attempts | try again after
            failure how often | How many times will a request be tried | When does Penstock stop
            retrying | What if a request kills each worker it runs on | Is there a maximum for
            retries
        """),
        held_out=phrasings("""
            How many attempts are made for one request? | How many times do you retry? | What
            happens after the third failed attempt? | Is a failing request retried for ever?
        """),
        topics=phrasings("attempts | retries"),
    ),
    Fact(
        key="gateway_death",
        answer="Gateways have a lease as well: when a gateway dies its open streams are aborted "
        "on the workers, and clients reconnect to another gateway.",
        key_phrases=("gateways have a lease as well",),
        questions=phrasings("""
            what happens when a gateway dies | what if the gateway crashes | what if a web server
            goes down | what happens to streams when the gateway fails | gateway failure | what if
            uvicorn is killed | can I run several gateways | what happens when the frontend process
            crashes | kill -9 on the gateway | what if the API server dies | dead gateway | gateway
            process crashes | an API server fails | open streams of a crashed gateway | more than
            one gateway | is the gateway a single point of failure | the web process is killed |
            gateway goes away | Suppose the gateway process crashes, what about my stream | What if
            an API server fails | How is a gateway failure handled | What becomes of open streams if
            their gateway goes away
        """),
        held_out=phrasings("""
            What happens when a gateway crashes? | My gateway was killed, what about the streams? |
            What if one of the gateways fails? | Do open streams survive a gateway crash?
        """),
        topics=phrasings("the death of a gateway | a gateway crash"),
    ),
    Fact(
        key="outbox",
        answer="The outbox is a durable file on each worker with everything generated and not "
        "yet in PostgreSQL; its entries stay until the database has committed them.",
        key_phrases=("durable file on each worker",),
        questions=phrasings("""
            what is the outbox | why do workers have an outbox | what is in the outbox | how do
            usage records reach the database | what if PostgreSQL is down when a request ends | how
            do you avoid losing usage | what is the outbox for | when is an outbox entry removed |
            where is usage kept before it is saved | how is usage made durable | can usage get lost
            | outbox pattern | why a file on the worker's disk | usage on its way to the database |
            unsaved usage | what does the worker store durably | outbox of a worker | data not yet
            in PostgreSQL | safe delivery of usage | What do you need an outbox for | Could usage
            data be lost on its way to the database | What does a worker keep on its disk | My
            worker has an outbox folder, what for
        """),
        held_out=phrasings("""
            What does the outbox hold? | Why does every worker have an outbox? | How do you make
            sure no usage is lost? | When does an entry leave the outbox?
        """),
        topics=phrasings("the outbox | a durable outbox"),
    ),
    Fact(
        key="sweeper",
        answer="The sweeper looks for reservations that were left behind, asks the pool what "
        "became of them and resolves them; a reservation never merely expires.",
        key_phrases=("reservations that were left behind",),
        questions=phrasings("""
            what is the sweeper | what does the sweeper do | who cleans up old reservations | what
            if there is a crash between reserve and enqueue | can a reservation be forgotten | do
            reservations expire | how are orphaned reservations found | cleaning up | what happens
            to lost reservations | garbage collection of reservations | stuck reservation | left
            over reservations | clean up reservations | reservation without a request | crash right
            after reserving | who resolves orphans | do reservations time out | forgotten
            reservations | cleanup job | Who resolves a reservation that was left over | What is the
            job of the sweeper | Does a reservation time out by itself | What happens if the gateway
            crashes right after reserving
        """),
        held_out=phrasings("""
            What does the sweeper clean up? | What happens to a reservation that was forgotten? |
            Which part takes care of left-over reservations? | Why do you need a sweeper?
        """),
        topics=phrasings("the sweeper | orphaned reservations"),
    ),
    Fact(
        key="finish",
        answer="Finish is the one point of truth: it accepts the current attempt once and "
        "appends the usage record in the same atomic call.",
        key_phrases=("one point of truth",),
        questions=phrasings("""
            what is finish | what happens when a request ends | what does the finish function do |
            when is a request over | how is a request ended exactly once | can a request finish
            twice | what is the terminal state | what is the point of truth | what is done at the
            end of a request | finish step | who decides that a request is complete | request ends
            only once | end of a request | what does finish do | single source of truth | finish
            called by two workers | accept the result once | terminal state of a request |
            completing a request | How do you guarantee that a request ends only once | What takes
            place when a request finishes | Which step is the single source of truth | Could the
            same request be finished by two workers
        """),
        held_out=phrasings("""
            Tell me what goes on in the finish call. | How is it ensured that a request finishes
            just once? | What is the one point of truth? | What happens at finish?
        """),
        topics=phrasings("the finish step | finish"),
    ),
    Fact(
        key="frames",
        answer="Frames carry tokens from worker to gateway: one frame holds the deltas of many "
        "streams of one engine step, each with request, attempt and sequence number.",
        key_phrases=("deltas of many streams",),
        questions=phrasings("""
            what is a frame | how do tokens get from the worker to the gateway | what is in a frame
            | what are frames | how do tokens travel | why do you batch tokens into frames | what is
            a delta | how is a gap in the stream noticed | what does a frame contain | transport of
            tokens | how are tokens sent back | how do workers send tokens | tokens from worker to
            gateway | contents of a frame | transport between worker and gateway | one message for
            many streams | batching of deltas | frame format | By what way do tokens travel back to
            the gateway | What is put into one frame | Somebody spoke of frames, what would those be
            | How do workers send their tokens
        """),
        held_out=phrasings("""
            What is inside a frame? | How do tokens reach the gateway from a worker? | What are
            frames used for? | Why are deltas of several streams put together?
        """),
        topics=phrasings("frames | a frame | deltas"),
    ),
    Fact(
        key="frame_hub",
        answer="The frame hub is the one task per gateway process that reads all frames and "
        "hands each delta to its stream, for SSE and websocket alike.",
        key_phrases=("one task per gateway process",),
        questions=phrasings("""
            what is the frame hub | what does the frame hub do | how are frames distributed to
            streams | who reads the frames | how do deltas find their stream | what is the hub | is
            there a reader per stream | one reader for all streams | frame hub in the gateway | who
            distributes deltas | receives frames in the gateway | reader of frames | routing deltas
            to streams | hub task | single reader in each gateway | purpose of the hub | Tell me
            what the hub is for | Which task in the gateway receives frames | How does a delta reach
            the right stream | What's a frame hub
        """),
        held_out=phrasings("""
            What's the job of the frame hub? | Who hands the deltas to the streams? | What does the
            hub in the gateway do? | How many tasks read frames in a gateway?
        """),
        topics=phrasings("the frame hub | the hub"),
    ),
    Fact(
        key="drain",
        answer="To drain a worker means that it takes no new requests, lets the running ones end "
        "and then stops; use it before an update.",
        key_phrases=("takes no new requests",),
        questions=phrasings("""
            what is draining | what does drain mean | how do I drain a worker | how do I update
            without downtime | how do I take a worker out of service | how do I stop a worker
            gracefully | rolling update | graceful shutdown | zero downtime deployment | how do I
            restart a worker safely | what happens on SIGTERM | maintenance of a node | remove a
            worker without losing requests | shut a worker down without losing requests | upgrade a
            node gracefully | stop taking new work | maintenance without interruption | let running
            requests end | take a node offline | deploy a new version of the worker | worker update
            | How can I shut a worker down without hurting users | What does it mean to drain | I
            need to upgrade a node, how do I do that gracefully | How do I do maintenance without
            interrupting requests
        """),
        held_out=phrasings("""
            How do I drain a worker before an update? | What happens when a worker is drained? | How
            can I update a worker gracefully? | I must reboot a node, how do I avoid losing
            requests?
        """),
        topics=phrasings("draining | drain | graceful shutdown"),
    ),
    Fact(
        key="invariants",
        answer="The invariants are rules that must always hold, such as one terminal usage "
        "record per request; `manage.py fsck` checks them.",
        key_phrases=("manage.py fsck",),
        questions=phrasings("""
            what is fsck | what are the invariants | how do I check consistency | how do I verify
            the data | what does manage.py fsck do | which rules must always hold | is there a
            consistency check | how do you know the books are right | check for corrupted data |
            what invariants does Penstock keep | self check of the data | verify that everything is
            consistent | command for a consistency check | rules that never break | check the books
            | data integrity check | detect inconsistent records | run fsck | Which command checks
            that the data is consistent | What sort of invariants are there | How can I verify that
            nothing is inconsistent | What is the fsck command for
        """),
        held_out=phrasings("""
            What does fsck verify? | How do I check the invariants? | Is there a command to check
            consistency? | Which invariants must hold?
        """),
        topics=phrasings("the invariants | fsck | consistency checks"),
    ),
)
