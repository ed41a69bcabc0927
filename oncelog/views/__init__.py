"""Views: answers of `Admin` as rows, totals and warnings. Pure; every display shows the same."""
