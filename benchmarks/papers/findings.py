"""What the measurements say, in words; figures stand in the tables."""

#: (experiment that must have been run, text)
FINDINGS = []
