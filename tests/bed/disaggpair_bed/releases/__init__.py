"""What the connector relies on in vLLM, and whether a release has it, read out of its wheel.

relied      the declaration: names, parameters, and what the code around them does
wheel       the sources of a release; nothing is installed or imported
surface     classes, methods and attributes in those sources
facts       what the scheduler and the cache do, as far as the connector relies on it
nixl_facts  what the halves of vLLM's NIXL connector do
snapshot    what a release has of the declaration, as JSON; what it lacks, in words
uses        what the connector's own sources take from vLLM, to compare with the declaration
fetch       wheels and their sources in the cache
released    a program that runs with the code of a release
stepped     such a program's engine: a real scheduler, stepped by hand
pairs       a P and a D of such engines
turns       such a program: scenes of turns of a P and a D with the connector
live        such a program: signatures as they are in an engine
"""
