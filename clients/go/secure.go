package oncelog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// SecurityConfig sets how a client speaks with nodes, and its identity. TLS is used if TLS is set
// or a file of it is given. Files are read again when they have changed: certificates with the
// next connection, a token with the next call.
type SecurityConfig struct {
	// TLS without TLSCAFile trusts the system's authorities.
	TLS bool
	// TLSCAFile holds the authorities of the nodes, PEM.
	TLSCAFile string
	// TLSCertFile and TLSKeyFile are this client's certificate, PEM: both or neither.
	TLSCertFile, TLSKeyFile string
	// TokenFile holds a token with the client's identity; Token is one itself. Sent over TLS only.
	TokenFile, Token string
}

const maxSecretFile = 1 << 20

func (s SecurityConfig) secured() bool {
	return s.TLS || s.TLSCAFile != "" || s.TLSCertFile != ""
}

func (s SecurityConfig) check() error {
	switch {
	case (s.TLSCertFile == "") != (s.TLSKeyFile == ""):
		return fail(ErrConfig, "TLSCertFile and TLSKeyFile belong together")
	case s.Token != "" && s.TokenFile != "":
		return fail(ErrConfig, "Token contradicts TokenFile")
	case (s.Token != "" || s.TokenFile != "") && !s.secured():
		return fail(ErrConfig, "a token needs TLS: in the clear everybody on the way could use it")
	}
	if s.secured() {
		if _, err := s.tlsConfig(); err != nil {
			return err
		}
	}
	if s.TokenFile != "" {
		if _, err := readToken(s.TokenFile); err != nil {
			return err
		}
	}
	return nil
}

func (s SecurityConfig) dialOptions() []grpc.DialOption {
	if !s.secured() {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(&fileCredentials{s, ""})}
	if s.Token != "" || s.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(&token{path: s.TokenFile, value: s.Token}))
	}
	return options
}

// tlsConfig reads the files.
func (s SecurityConfig) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLSCAFile != "" {
		pem, err := readSmall("TLSCAFile", s.TLSCAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fail(ErrConfig, "TLSCAFile: %s holds no certificate in PEM", s.TLSCAFile)
		}
	}
	if s.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
		if err != nil {
			return nil, fail(ErrConfig, "TLSCertFile, TLSKeyFile: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// fileCredentials make each handshake with the files' content at its moment.
type fileCredentials struct {
	settings SecurityConfig
	name     string // of the server, instead of the address's
}

func (f *fileCredentials) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := f.settings.tlsConfig()
	if err != nil {
		return nil, nil, err // between two files that are replaced: it is tried again
	}
	config.ServerName = f.name
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

func (f *fileCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fail(ErrInternal, "a client's credentials take no connections")
}

func (f *fileCredentials) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: f.name, MinVersion: tls.VersionTLS12}).Info()
}

func (f *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{f.settings, f.name}
}

func (f *fileCredentials) OverrideServerName(name string) error {
	f.name = name
	return nil
}

// token is added to each call.
type token struct {
	path string // empty: the value stays

	mu      sync.Mutex
	value   string
	changed time.Time
	size    int64
}

func (t *token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	value, err := t.current()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + value}, nil
}

func (t *token) RequireTransportSecurity() bool { return true }

func (t *token) current() (string, error) {
	if t.path == "" {
		return t.value, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	found, err := os.Stat(t.path)
	if err != nil {
		return "", fail(ErrConfig, "TokenFile: %v", err)
	}
	if t.value == "" || !found.ModTime().Equal(t.changed) || found.Size() != t.size {
		value, err := readToken(t.path)
		if err != nil {
			return "", err
		}
		t.value, t.changed, t.size = value, found.ModTime(), found.Size()
	}
	return t.value, nil
}

func readToken(path string) (string, error) {
	data, err := readSmall("TokenFile", path)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(data))
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	if value == "" || strings.ContainsFunc(value, strange) {
		return "", fail(ErrConfig, "TokenFile: %s holds no token", path)
	}
	return value, nil
}

func readSmall(setting, path string) ([]byte, error) {
	found, err := os.Stat(path)
	if err != nil {
		return nil, fail(ErrConfig, "%s: %v", setting, err)
	}
	if found.Size() > maxSecretFile {
		return nil, fail(ErrConfig, "%s: %s has %d bytes", setting, path, found.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fail(ErrConfig, "%s: %v", setting, err)
	}
	return data, nil
}
