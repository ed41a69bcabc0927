"""The cluster that the kit plays: honest by the nodes' own rules, lying where a case says so."""
