"""A lean client that keeps many streams open over loopback, in a process of its own.

Raw HTTP/1.1 and websocket frames on uvloop, so that its own cost stays small; the same client
drives every server of a comparison, so what it costs falls on all of them alike, and is counted
apart.
"""
