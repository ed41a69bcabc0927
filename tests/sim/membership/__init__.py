"""Members of groups that change: schedules, random runs, and the weaknesses they must catch."""
