"""One P and one D in virtual time, with measured costs, to judge how ways of a turn are chosen.

`costs` holds the measured tables, `decode` and `world` the engines, `traffic` the conversations,
`policies` who chooses, `report` what came of it. Seeded: the same arguments give the same figures.
"""
