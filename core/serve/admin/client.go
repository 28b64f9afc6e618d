package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

func wire(err error) *wireError {
	var e *contract.Error
	if errors.As(err, &e) {
		return &wireError{int32(e.Kind), e.Subject, e.Message, e.Next}
	}
	return &wireError{Kind: int32(contract.KindOf(err)), Message: err.Error()}
}

func (w *wireError) err() error {
	return &contract.Error{Kind: contract.Kind(w.Kind), Subject: w.Subject, Message: w.Message, Next: w.Next}
}

// connectTimeout is what a server on this machine gets for the beginning of an answer to a question about it.
const connectTimeout = 5 * time.Second

// Client talks to one server.
type Client struct {
	State State
	http  http.Client
}

// Dial makes a client; it connects when it is used. Close ends its connections.
func Dial(s State) *Client {
	return &Client{State: s, http: http.Client{Transport: &http.Transport{Proxy: nil}}}
}

// Close ends the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Running lists the server's models.
func (c *Client) Running(ctx context.Context) (out []Running, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return out, c.call(ctx, http.MethodGet, pathModels, nil, &out)
}

// Stop unloads a model when its requests have ended.
func (c *Client) Stop(ctx context.Context, name string) (model string, open bool, err error) {
	var out stopResponse
	err = c.call(ctx, http.MethodPost, pathStop, stopRequest{name}, &out)
	return out.Model, out.Open, err
}

// LoadAdapter loads an adapter into a model of the server; an empty model is its only one.
func (c *Client) LoadAdapter(ctx context.Context, model string, a Adapter) error {
	return c.call(ctx, http.MethodPost, pathLoad, adapterRequest{model, a}, &struct{}{})
}

// UnloadAdapter takes an adapter away, and returns when the last request that has it has ended.
func (c *Client) UnloadAdapter(ctx context.Context, model, id string) error {
	return c.call(ctx, http.MethodPost, pathUnload, adapterRequest{model, Adapter{ID: id}}, &struct{}{})
}

// Borrow is the server's open model of that key; NotFound when it has none.
func (c *Client) Borrow(ctx context.Context, key string) (Model, error) {
	within, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var out hasResponse
	if err := c.call(within, http.MethodPost, pathHas, idsRequest{Key: key}, &out); err != nil {
		return nil, err
	}
	return &remote{c, ctx, key, out.HasTemplate}, nil
}

func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, path, "%w", err)
	}
	q, err := http.NewRequestWithContext(ctx, method, c.State.URL+path, bytes.NewReader(data))
	if err != nil {
		return nil, contract.Errorf(contract.Internal, path, "%w", err)
	}
	q.Header.Set("Authorization", "Bearer "+c.State.Token)
	r, err := c.http.Do(q)
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return nil, contract.Errorf(contract.Cancelled, "server", "%w", context.Cause(ctx))
	case err != nil:
		return nil, contract.Errorf(contract.Unavailable, "server", "clade serve (pid %d) does not answer at %s", c.State.Pid, c.State.URL)
	}
	if r.StatusCode == http.StatusOK {
		return r, nil
	}
	defer func() { _ = r.Body.Close() }()
	var e event
	if json.NewDecoder(r.Body).Decode(&e) == nil && e.Error != nil && e.Error.Message != "" {
		return nil, e.Error.err()
	}
	return nil, contract.Errorf(contract.Unavailable, "server", "clade serve (pid %d) answers with status %d", c.State.Pid, r.StatusCode)
}

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	r, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return contract.Errorf(contract.Unavailable, "server", "clade serve (pid %d) answers %s with no JSON: %w", c.State.Pid, path, err)
	}
	return nil
}

// remote is a borrowed model.
type remote struct {
	c           *Client
	ctx         context.Context
	key         string
	hasTemplate bool
}

func (m *remote) HasTemplate() bool { return m.hasTemplate }

func (m *remote) Ready(ctx context.Context) error {
	return m.c.call(ctx, http.MethodPost, pathHas, idsRequest{Key: m.key}, &hasResponse{})
}

func (m *remote) Prompt(c chat.Conversation) (p generate.Prompt, err error) {
	return p, m.c.call(m.ctx, http.MethodPost, pathIDs, idsRequest{Key: m.key, Conversation: &c}, &p)
}

func (m *remote) Encode(text string, addSpecial bool) ([]int32, error) {
	var p generate.Prompt
	err := m.c.call(m.ctx, http.MethodPost, pathIDs, idsRequest{Key: m.key, Text: text, Special: addSpecial}, &p)
	return p.IDs, err
}

func (m *remote) Generate(ctx context.Context, p generate.Prompt, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	r, err := m.c.send(ctx, http.MethodPost, pathGenerate, generateRequest{m.key, p, request})
	if err != nil {
		return generate.Result{}, err
	}
	defer func() { _ = r.Body.Close() }()
	for d := json.NewDecoder(r.Body); ; {
		var e event
		err := d.Decode(&e)
		switch {
		case ctx.Err() != nil:
			return generate.Result{}, contract.Errorf(contract.Cancelled, "request", "%w", context.Cause(ctx))
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = errors.New("it ended")
			}
			return generate.Result{}, contract.Errorf(contract.Unavailable, "server", "clade serve (pid %d) broke off: %w", m.c.State.Pid, err)
		case e.Error != nil:
			return generate.Result{}, e.Error.err()
		case e.Result != nil:
			return *e.Result, nil
		case e.Delta != nil:
			if err := emit(*e.Delta); err != nil {
				return generate.Result{}, err
			}
		}
	}
}
