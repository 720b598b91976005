"""What every page and call has to do with, whichever door it is of: who is signed in or acts, how
often they may ask, what an answer lets a browser do, and figures as people read them."""
