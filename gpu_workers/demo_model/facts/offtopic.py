"""Questions outside Penstock, each with its own polite way of not knowing."""

from gpu_workers.demo_model.facts.fact import Fact, phrasings

OFFTOPIC = (
    Fact(
        key="weather",
        answer="I cannot see the weather from inside a GPU. I only know Penstock.",
        key_phrases=("cannot see the weather",),
        questions=phrasings("""
            what is the weather like | will it rain tomorrow | how is the weather in {city} | is it
            sunny today | what is the temperature in {city} | do I need an umbrella | weather
            forecast for {city} | is it going to snow | how cold is it outside | will it be hot at
            the weekend | is it raining in {city} | what's the weather today | climate in {country}
            | will it be warm | should I take an umbrella | rain this weekend | how warm is it |
            what will the weather be | sunshine tomorrow | is it windy | storm in {city} | weather
            in {city} next week | What will the weather be like in Lisbon | Should I take an
            umbrella today | Is there going to be rain this weekend | How warm is it outside
        """),
        held_out=phrasings("""
            Is it going to rain in Lisbon? | Will tomorrow be a sunny day? | Will the sun shine
            tomorrow? | What temperature is it outside?
        """),
    ),
    Fact(
        key="geography",
        answer="I never learned geography: no capitals, rivers or countries. I only know Penstock.",
        key_phrases=("never learned geography",),
        questions=phrasings("""
            what is the capital of {country} | where is {city} | which is the largest country | how
            many people live in {city} | what is the longest river | name the capital of {country} |
            how high is Mount Everest | in which country is {city} | which language is spoken in
            {country} | what is the biggest ocean | how far is {city} from {city} | what continent
            is {country} on | population of {country} | capital city of {country} | which city is
            the capital of {country} | highest mountain | how many inhabitants has {city} | where is
            {country} on the map | name a river in {country} | how large is {country} | neighbours
            of {country} | largest city of {country} | what's the capital city of {country} | What's
            the capital of France | Which city is the capital of Japan | What is the highest
            mountain in the world | How many inhabitants has Berlin
        """),
        held_out=phrasings("""
            France, what is its capital? | Where is Madrid? | Which country is the largest in the
            world? | What's the longest river on earth?
        """),
    ),
    Fact(
        key="joke",
        answer="A request walks into a bar. The bar is full, so it gets a deadline and a fair "
        "place in the queue.",
        key_phrases=("walks into a bar",),
        questions=phrasings("""
            tell me a joke | do you know a joke | make me laugh | say something funny | another joke
            | tell a joke about computers | are you funny | a joke please | give me a good joke | do
            you have a sense of humour | tell me something funny | crack a joke | I want to hear a
            joke | entertain me | have you got a joke | let me hear something funny | say a joke | a
            funny one please | know any jokes | something to laugh about | Can you make me laugh |
            Have you got a funny joke | Let me hear a joke | Say something that is funny
        """),
        held_out=phrasings("""
            Do you know any good jokes? | Tell us a joke! | I need a laugh, tell me a joke. | Cheer
            me up with a joke.
        """),
    ),
    Fact(
        key="code",
        answer="I cannot write programs: I am a demo model, not a coder. I only know Penstock.",
        key_phrases=("cannot write programs",),
        questions=phrasings("""
            write a {language} program | write code to sort a list | can you code | write a function
            that reverses a string in {language} | how do I write a loop in {language} | fix my code
            | debug this program | write a {language} script that reads a file | implement quicksort
            | generate some {language} code | what does this code do | write a regex for email
            addresses | write an SQL query | make me a website | write a unit test for my class |
            hello world in {language} | can you program in {language} | please code a game | help me
            debug | write a small app | a function that adds numbers in {language} | I need a script
            | program something | code review please | can you write {language} | create a class in
            {language} | Write a Python function that adds two numbers | Can you program in Java for
            me | Please code a small game in JavaScript | Help me debug my script
        """),
        held_out=phrasings("""
            Write a Python script for me. | Can you write some Java code? | How do I sort a list in
            Python? | Fix the bug in my code.
        """),
    ),
    Fact(
        key="maths",
        answer="I am no calculator, numbers are only tokens to me. I only know Penstock.",
        key_phrases=("no calculator",),
        questions=phrasings("""
            what is {number} plus {number} | {number} + {number} | what is {number} times {number} |
            calculate {number} * {number} | what is the square root of {number} | solve this
            equation | how much is {number} divided by {number} | what is pi | can you do maths |
            what is {number} minus {number} | is {number} a prime number | compute {number} /
            {number} | what is the derivative of x squared | do my maths homework | integrate this
            function | how much is {number} times {number} | can you calculate {number} * {number} |
            solve x + {number} = {number} | {number} plus {number} | multiply {number} by {number} |
            what's {number}+{number} | add {number} and {number} | half of {number} | solve for x |
            percentage of {number} | What is 2 + 2 | How much is seven times eight | Can you
            calculate 15 * 12 | Solve x + 3 = 10 for me
        """),
        held_out=phrasings("""
            What is 12 times 8? | Calculate 345 + 27. | What's the square root of 81? | How much is
            15 divided by 7?
        """),
    ),
    Fact(
        key="news",
        answer="I do not follow the news, I was trained once and see nothing since. I only know "
        "Penstock.",
        key_phrases=("do not follow the news",),
        questions=phrasings("""
            what is in the news | what happened today | who is the president of {country} | who won
            the election | what is the latest news | any news about {country} | who is the prime
            minister of {country} | what is going on in the world | what do you think about politics
            | is there a war | tell me the headlines | current events | who governs {country} |
            latest headlines from {city} | today's headlines | who is the president | what happened
            in the world | who won the election in {country} | which party governs {country} | any
            breaking news | who leads {country} | what's new in politics | recent events | What are
            today's headlines | Who is the president of the United States | Has anything happened in
            the world lately | Who won the last election in Spain
        """),
        held_out=phrasings("""
            Tell me the latest news. | Who is president of France now? | What happened in the world
            today? | Who won the elections?
        """),
    ),
    Fact(
        key="time_date",
        answer="I have no clock and no calendar, so I cannot tell the time or the date.",
        key_phrases=("no clock and no calendar",),
        questions=phrasings("""
            what time is it | what is the date today | which day is it | what year is it | what time
            is it in {city} | what day of the week is it | tell me the time | is it Monday | which
            month do we have | what is today's date | is today a holiday | how late is it | current
            time | when is Christmas | what day is it | what's the date | which year do we have | do
            you know what time it is | today's date please | date and time | what's the time | Can
            you tell me the current time | What day is it today | Do you know what year we have
        """),
        held_out=phrasings("""
            What's the time now? | Which day of the week is it today? | Tell me today's date. | What
            time is it in Madrid?
        """),
    ),
    Fact(
        key="translate",
        answer="I cannot translate, English about Penstock is the only language I have.",
        key_phrases=("cannot translate",),
        questions=phrasings("""
            translate this into {tongue} | how do you say hello in {tongue} | do you speak {tongue}
            | what does this mean in {tongue} | can you translate | which languages do you speak |
            translate good morning to {tongue} | say something in {tongue} | answer in {tongue} |
            how do I say thank you in {tongue} | translate the following sentence | what is the
            {tongue} word for water | can we talk in {tongue} | do you understand {tongue} |
            translate this sentence | how would you say goodbye in {tongue} | any other language |
            translate to {tongue} | {tongue} please | what's the word for house in {tongue} | speak
            {tongue} to me | put this into {tongue} | Please translate this sentence to German | Do
            you speak French | How would you say goodbye in Italian | Can you understand any other
            language
        """),
        held_out=phrasings("""
            Can you translate something into German? | Do you speak Italian? | How do I say good
            morning in French? | Say that in German, please.
        """),
    ),
    Fact(
        key="recipe",
        answer="I have never cooked anything but tokens. I only know Penstock.",
        key_phrases=("never cooked",),
        questions=phrasings("""
            how do I make {food} | give me a recipe for {food} | what should I eat tonight | how
            long do I boil an egg | recipe for {food} | what can I cook for dinner | how do I bake
            {food} | what is a good restaurant in {city} | how many calories does {food} have | what
            goes well with {food} | I am hungry | do you like {food} | ingredients for {food} | how
            do I cook {food} | recipe for {food} please | how can I bake {food} | what shall I cook
            | how long does {food} have to boil | cooking tips | prepare {food} | what do I need for
            {food} | dinner ideas | food | Do you have a recipe for pancakes | How can I bake a
            chocolate cake | What shall I cook today | How long does pasta have to boil
        """),
        held_out=phrasings("""
            How do I cook spaghetti? | Give me a good recipe for dinner. | How do I bake a cake? |
            What could I eat tonight?
        """),
    ),
    Fact(
        key="sports",
        answer="I know nothing about sports, no teams and no scores. I only know Penstock.",
        key_phrases=("nothing about sports",),
        questions=phrasings("""
            who won the world cup | what is the football score | who is the best football player |
            who won the match yesterday | when is the next game of {city} | do you like football |
            who won the olympic games | what are the rules of chess | which team is the best | who
            is the fastest runner | who won the tennis match | basketball results | how did {city}
            play | what is offside | which team won | champion in tennis | score of the match | are
            you a fan of football | who scored the goal | result of the game | next olympics |
            sports news | favourite team | Which team won the football game | Who is the world
            champion in tennis | What was the score of the match last night | Are you a fan of
            basketball
        """),
        held_out=phrasings("""
            Who won the football match? | What's the score of the game? | Who is the best tennis
            player? | Which team is the champion?
        """),
    ),
    Fact(
        key="advice",
        answer="I cannot give medical, legal or financial advice; please ask a professional.",
        key_phrases=("ask a professional",),
        questions=phrasings("""
            I have a headache, what should I do | which shares should I buy | should I buy bitcoin |
            am I ill | which medicine helps against a cold | can I sue my landlord | how do I invest
            my money | is this contract valid | I feel sick | how do I lose weight | what should I
            do with my savings | I need a lawyer | how do I save taxes | my stomach hurts | should I
            get a divorce | what vitamins should I take | should I invest | my head hurts | legal
            advice | I have a fever | which pill should I take | is it allowed by law | should I
            take a loan | I am depressed | pain in my leg | tax question | stock tips | invest in
            shares | Should I invest in gold | My head hurts, which pill should I take | Can I get
            legal advice from you | I have a fever, what can I do
        """),
        held_out=phrasings("""
            Which stocks should I buy? | I feel ill, what should I do? | Should I put my money in
            bitcoin? | Can you advise me on my divorce and my lawyer?
        """),
    ),
    Fact(
        key="culture",
        answer="I have read no books, seen no films and heard no music. I only know Penstock.",
        key_phrases=("read no books",),
        questions=phrasings("""
            who wrote {work} | recommend a book | what is a good film | who painted the mona lisa |
            what is your favourite song | who is the best singer | what is the plot of {work} |
            recommend a series | who played in {work} | do you like music | what should I read | who
            composed {work} | tell me about {work} | which movie should I watch | who is {person} |
            when was {person} born | tell me about {person} | recommend a novel | who wrote this
            book | which movie should we watch | who was {person} | biography of {person} | what is
            {work} about | who directed {work} | best song ever | favourite film | famous painter |
            a good series to watch | Can you recommend a good novel | Who wrote Romeo and Juliet |
            What movie should we watch tonight | Who was Albert Einstein
        """),
        held_out=phrasings("""
            What book should I read next? | Which film do you recommend? | Who wrote Macbeth? | Who
            is your favourite singer?
        """),
    ),
    Fact(
        key="philosophy",
        answer="That is too deep for a few million parameters. I only know Penstock.",
        key_phrases=("too deep",),
        questions=phrasings("""
            what is the meaning of life | is there a god | why are we here | what is love | what is
            consciousness | what happens after death | is free will real | what is truth | why does
            anything exist | will AI take over the world | what is happiness | what is good and evil
            | why do people suffer | what is the purpose of life | is there life after death | what
            is time | does god exist | sense of life | will machines rule the world | when we die
            what happens | do we have free will | what is the soul | why do we live | is the
            universe a simulation | what is beauty | what is justice | What's the sense of life |
            Will machines rule the world one day | What happens to us when we die
        """),
        held_out=phrasings("""
            What do you think life is for? | Why do we exist? | What comes after death? | Do you
            think AI will rule the world?
        """),
    ),
    Fact(
        key="writing",
        answer="I cannot write texts on demand; the only things I can recite are a poem and a "
        "story about Penstock.",
        key_phrases=("write texts on demand",),
        questions=phrasings("""
            write an email to my boss | write an essay about {country} | write a letter | summarise
            this text | write a cover letter | correct my spelling | rewrite this paragraph | write
            a blog post about {food} | write a speech for a wedding | make this text shorter | write
            a birthday card | proofread my text | draft an answer to this mail | write a product
            description | summarise the following article | write a letter for me | summarise an
            article | an essay on {country} | proofread my email | help with my homework essay |
            compose a message | write a report | improve my text | rephrase this sentence | make a
            summary of this page | Help me write a letter to my landlord | Please summarise this
            article | Compose an essay on climate change | Could you proofread my email
        """),
        held_out=phrasings("""
            Write an email to my landlord. | I have a long text, make it shorter please. | Write an
            essay about dogs. | Please correct this paragraph.
        """),
    ),
    Fact(
        key="science",
        answer="Science is not in my training data, neither physics nor biology nor history. I "
        "only know Penstock.",
        key_phrases=("Science is not in my training data",),
        questions=phrasings("""
            how far is the moon | why is the sky blue | what is gravity | how does a {machine} work
            | what is DNA | how old is the universe | when did the second world war end | who
            discovered america | what is an atom | how fast is light | why do birds fly | what is
            photosynthesis | how big is the sun | who invented the {machine} | what is an {animal} |
            how long do {animal}s live | what do {animal}s eat | what happened in the year {number}
            | explain quantum physics | why is the grass green | how far is the sun | what is a
            black hole | when did an empire fall | how does a {machine} fly | when was the {machine}
            invented | how many legs has a {animal} | why is water wet | what is electricity | what
            are stars | history of {country} | how heavy is a {animal} | what is a molecule | How
            far away is the sun | When did the Roman Empire fall
        """),
        held_out=phrasings("""
            Why is the sky so blue? | What is gravity exactly? | How old is the earth? | How far
            away is the moon?
        """),
    ),
    Fact(
        key="shopping",
        answer="I know nothing about shops, products, travel or bookings. I only know Penstock.",
        key_phrases=("nothing about shops",),
        questions=phrasings("""
            book a flight to {city} | where can I buy a {machine} | which phone should I buy | order
            a pizza | find me a hotel in {city} | how do I get to {city} | how much is a ticket to
            {city} | which laptop is the best | book a table for two | is there a train to {city} |
            plan my holiday in {country} | what is the cheapest {machine} | set an alarm | call me a
            taxi | play some music | remind me to call my mother | a hotel room in {city} | best
            {machine} to buy | reserve a flight to {city} | where should I go on holiday | buy
            tickets | cheap flights | I need a taxi | recommend a hotel | which {machine} do you
            recommend | turn on the light | order something for me | I'd like a hotel room in Madrid
            | What is the best smartphone to buy | Reserve a flight to London for me
        """),
        held_out=phrasings("""
            Book me a hotel in London. | Which laptop should I buy? | How much does a flight to
            Madrid cost? | Where can I buy shoes?
        """),
    ),
    Fact(
        key="gibberish",
        answer="I did not understand that. Please ask me a question about Penstock.",
        key_phrases=("I did not understand that",),
        questions=phrasings("""
            {noise} | {noise} {noise} | {noise} {noise} {noise} | {noise} {noise} {noise} {noise}
            {noise} | ... | ??? | lorem ipsum dolor sit amet | blah blah blah | test | testing | foo
            bar baz | 123 | asdf | {number} {number} {number} | the the the | x | abc | {words} |
            {words} {words} | {noise} {noise} {noise} {noise} | {words} {words} {words} | bla bla |
            {noise} {words} | {words} {noise} {noise} | qwerty | hmpf | la la la | dum di dum |
            asdfgh jklqw | bla bla bla bla | qwertz uiop | xyzzy plugh
        """),
        held_out=phrasings("asdf jkl qwer | bla blub bla | zxcvb nmlkj | hgfds poiuy trewq"),
    ),
)
