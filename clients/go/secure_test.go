package oncelog

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// authority signs certificates of loopback.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func newAuthority(t *testing.T) *authority {
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	certificate := must[*x509.Certificate](t)(x509.ParseCertificate(der))
	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue writes NAME.crt and NAME.key, and returns their paths.
func (a *authority) issue(t *testing.T, dir, name string, ends time.Time) (string, string) {
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: ends,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name},
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key))
	raw := must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))
	paths := [2]string{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	write(t, paths[0], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, paths[1], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	return paths[0], paths[1]
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// secured is a node that wants TLS, and notes callers and their tokens.
type secured struct {
	broker
	mu     sync.Mutex
	tokens []string
	names  []string
	wanted string
}

func (s *secured) note(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	s.tokens = append(s.tokens, append(values, "")[0])
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			s.names = append(s.names, info.State.PeerCertificates[0].Subject.CommonName)
		}
	}
	if s.wanted != "" && (len(values) != 1 || values[0] != "Bearer "+s.wanted) {
		return status.Error(codes.Unauthenticated, "the token is not known")
	}
	return nil
}

// noted gives the tokens and the names of certificates that came so far.
func (s *secured) noted() ([]string, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens), slices.Clone(s.names)
}

func startSecured(t *testing.T, dir string, clients, nodes *authority, wanted string) *secured {
	certificate, key := nodes.issue(t, dir, "node", time.Now().Add(time.Hour))
	pair := must[tls.Certificate](t)(tls.LoadX509KeyPair(certificate, key))
	pool := x509.NewCertPool()
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if clients != nil {
		pool.AddCert(clients.certificate)
		config.ClientCAs, config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	s := &secured{wanted: wanted}
	s.broker = broker{
		address: listener.Addr().String(), partitions: 1,
		logs: map[int32][]*pb.StoredBatch{}, last: map[[2]int64]int64{}, changed: make(chan struct{}),
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := s.note(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.note(stream.Context()); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	)
	pb.RegisterClusterServiceServer(server, &s.broker)
	pb.RegisterProducerServiceServer(server, &s.broker)
	pb.RegisterLogServiceServer(server, &s.broker)
	go func() { _ = server.Serve(listener) }() // it ends when it is stopped
	t.Cleanup(server.Stop)
	return s
}

func send(t *testing.T, s *secured, security SecurityConfig, options ...func(*ProducerConfig)) error {
	t.Helper()
	options = append(options, func(c *ProducerConfig) { c.Security, c.Linger = security, 0 })
	producer, err := NewProducer(s.address, options...)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close(t.Context()) }() // its failure is returned below
	_, err = producer.SendSync(t.Context(), Message{Topic: "t", Value: []byte("v")})
	return err
}

func TestTLSAndWhoTheClientIs(t *testing.T) {
	dir := t.TempDir()
	clients, nodes, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	ca, other := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "other.crt")
	write(t, ca, nodes.pem)
	write(t, other, strangers.pem)
	certificate, key := clients.issue(t, dir, "app", time.Now().Add(time.Hour))
	foreign, foreignKey := strangers.issue(t, dir, "foreign", time.Now().Add(time.Hour))
	over, overKey := clients.issue(t, dir, "over", time.Now().Add(-time.Hour))
	s := startSecured(t, dir, clients, nodes, "")
	brief := func(c *ProducerConfig) { c.RequestTimeout, c.MaxBlock = 700*ms, 800*ms } // of those in vain
	for name, bad := range map[string]SecurityConfig{
		"in the clear":          {},
		"no certificate":        {TLSCAFile: ca},
		"a foreign certificate": {TLSCAFile: ca, TLSCertFile: foreign, TLSKeyFile: foreignKey},
		"one that is over":      {TLSCAFile: ca, TLSCertFile: over, TLSKeyFile: overKey},
		"another node":          {TLSCAFile: other, TLSCertFile: certificate, TLSKeyFile: key},
		"the system's CAs":      {TLS: true, TLSCertFile: certificate, TLSKeyFile: key},
	} {
		if err := send(t, s, bad, brief); err == nil {
			t.Error(name, "is served")
		}
	}
	if tokens, _ := s.noted(); len(tokens) != 0 {
		t.Error("a call came through:", tokens)
	}
	if err := send(t, s, SecurityConfig{TLSCAFile: ca, TLSCertFile: certificate, TLSKeyFile: key}); err != nil {
		t.Error(err)
	}
	if _, names := s.noted(); len(names) == 0 || names[0] != "app" {
		t.Error(names)
	}
}

func TestTokensAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	nodes := newAuthority(t)
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	write(t, ca, nodes.pem)
	s := startSecured(t, dir, nil, nodes, "second")
	write(t, token, []byte("first\n"))
	err := send(t, s, SecurityConfig{TLSCAFile: ca, TokenFile: token})
	if err == nil {
		t.Error("the wrong token is taken")
	}
	admin := must[*Admin](t)(NewAdmin(s.address, func(c *AdminConfig) {
		c.Security = SecurityConfig{TLSCAFile: ca, TokenFile: token}
	}))
	defer admin.Close()
	if _, err := admin.DescribeTopics(t.Context(), "t"); err == nil {
		t.Error("the wrong token is taken")
	}
	write(t, token, []byte("second, longer\n"))
	if _, err := admin.DescribeTopics(t.Context(), "t"); err == nil {
		t.Error("a text with a space is no token")
	}
	write(t, token, []byte("second\n"))
	if _, err := admin.DescribeTopics(t.Context(), "t"); err != nil {
		t.Error(err)
	}
	if err := send(t, s, SecurityConfig{TLSCAFile: ca, Token: "second"}); err != nil {
		t.Error(err)
	}
}

func TestSecurityThatContradictsItself(t *testing.T) {
	dir := t.TempDir()
	nothing := filepath.Join(dir, "nothing")
	write(t, nothing, []byte("nothing"))
	for _, bad := range []SecurityConfig{
		{Token: "a"}, {TokenFile: nothing}, {TLS: true, Token: "a", TokenFile: nothing},
		{TLSCertFile: nothing}, {TLSKeyFile: nothing}, {TLSCAFile: nothing},
		{TLSCAFile: filepath.Join(dir, "missing")}, {TLSCertFile: nothing, TLSKeyFile: nothing},
		{TLS: true, TokenFile: filepath.Join(dir, "missing")},
	} {
		_, err := NewAdmin("127.0.0.1:1", func(c *AdminConfig) { c.Security = bad })
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
