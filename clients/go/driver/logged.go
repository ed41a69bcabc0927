package main

import (
	"log/slog"
	"strings"
	"sync"
)

// logged keeps the client's warnings and errors.
var logged lines

type lines struct {
	mu   sync.Mutex
	kept []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, strings.TrimSpace(string(line)))
	return len(line), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.kept...)
}

func (l *lines) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = nil
}

var logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
