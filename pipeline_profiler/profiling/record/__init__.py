"""What runs inside the user's training loop, and what it leaves behind.

In: batches that pass by, clocks, stages that somebody named. Out: a `Session` of runs, spans in
integer columns, saved as one JSON document. Cost: some microseconds a step; nothing is analysed
while the loop runs. Standard library only, so that it works where only the framework is installed.
"""
