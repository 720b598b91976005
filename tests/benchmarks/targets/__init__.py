"""Every target of the Makefile: started by the suite in its smallest form, or why it is not."""
