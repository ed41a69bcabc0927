package oncelog

import (
	"log/slog"
	"sync"
	"time"
)

const mostPatience = 5 * time.Second

// Outages say how a client's connection to the cluster has been since its start.
type Outages struct {
	// Count is how often no node answered for 5 s, or for RequestTimeout if that is shorter.
	Count int64
	// Current is for how long that has been so by now; 0: a node answers.
	Current time.Duration
}

// reachability warns when no node has answered for a while, and when one does again.
type reachability struct {
	log      *slog.Logger
	patience time.Duration
	// A client calls seldom while it is idle: failures so far apart are not one outage.
	gap time.Duration

	mu     sync.Mutex
	since  time.Time // of the first failure after the last answer; zero: there is none
	last   time.Time
	warned bool
	count  int64
}

func newReachability(c *ClientConfig) *reachability {
	return &reachability{
		log: c.logger(), patience: min(mostPatience, c.RequestTimeout),
		gap: 2 * max(mostPatience, c.RequestTimeout),
	}
}

func (r *reachability) answered(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned {
		r.log.Warn("oncelog: a node answers again", "node", address, "after", time.Since(r.since))
	}
	r.since, r.warned = time.Time{}, false
}

func (r *reachability) failed(why error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || now.Sub(r.last) > r.gap {
		r.since, r.warned = now, false
	}
	r.last = now
	if !r.warned && now.Sub(r.since) >= r.patience {
		r.warned = true
		r.count++
		r.log.Warn("oncelog: no node answers, the client keeps trying", "for", now.Sub(r.since), "why", why)
	}
}

func (r *reachability) outages() Outages {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := Outages{Count: r.count}
	if r.warned {
		o.Current = time.Since(r.since)
	}
	return o
}
