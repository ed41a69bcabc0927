"""Members of groups that change: schedules, random runs, and what they must catch."""
