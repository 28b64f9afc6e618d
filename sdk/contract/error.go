package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Error is every error that a person or a client sees: a Kind, the subject (a file, tensor, field or profile id), what is
// wrong, and the next step. Err, when set, is the cause; it is not repeated in the text.
type Error struct {
	Kind    Kind
	Subject string
	Message string
	Next    string
	Err     error
}

// Error is one line: "subject: message; next step".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Subject != "" {
		b.WriteString(e.Subject)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Next != "" {
		b.WriteString("; ")
		b.WriteString(e.Next)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (e *Error) Unwrap() error { return e.Err }

// WithNext returns a copy of e that ends with the next step.
func (e *Error) WithNext(format string, args ...any) *Error {
	c := *e
	c.Next = fmt.Sprintf(format, args...)
	return &c
}

// Errorf makes an Error about subject. A %w verb sets its cause.
func Errorf(kind Kind, subject, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Subject: subject, Message: err.Error(), Err: errors.Unwrap(err)}
}

// KindOf is the Kind of the first Error in err's chain; Cancelled for a cancelled context, else Internal.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Internal
}

// codeOf is the gRPC code an error travels under; the Kind in the detail is what the other side reads.
var codeOf = map[Kind]codes.Code{
	InvalidArgument:      codes.InvalidArgument,
	UnsupportedOption:    codes.InvalidArgument,
	UnsupportedModel:     codes.FailedPrecondition,
	UnsupportedModelLoad: codes.FailedPrecondition,
	MemoryAdmission:      codes.ResourceExhausted,
	OutOfMemory:          codes.ResourceExhausted,
	ContextTooLong:       codes.OutOfRange,
	ArtifactCorrupt:      codes.DataLoss,
	NotFound:             codes.NotFound,
	Busy:                 codes.ResourceExhausted,
	Cancelled:            codes.Canceled,
	Unavailable:          codes.FailedPrecondition,
}

// ToStatus turns err into a gRPC status error with an ErrorDetail. A nil err stays nil; a status error stays as it is.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		if _, ok := status.FromError(err); ok {
			return err
		}
		e = &Error{Kind: KindOf(err), Message: err.Error()}
	}
	code, ok := codeOf[e.Kind]
	if !ok {
		code = codes.Internal
	}
	st, derr := status.New(code, e.Error()).WithDetails(&cladev1.ErrorDetail{
		Kind: cladev1.Kind(e.Kind), Subject: e.Subject, Message: e.Message, NextStep: e.Next,
	})
	if derr != nil {
		return status.Error(code, e.Error())
	}
	return st.Err()
}

// FromStatus turns what a gRPC call returned back into an *Error. An error that is not a status, io.EOF among them, is
// returned unchanged. A status without our detail reads: Canceled is Cancelled, Unimplemented is UnsupportedOption,
// DeadlineExceeded and Unavailable are PluginCrashed (the connection went away), all else Internal.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		if e, ok := d.(*cladev1.ErrorDetail); ok {
			return &Error{Kind: Kind(e.Kind), Subject: e.Subject, Message: e.Message, Next: e.NextStep, Err: err}
		}
	}
	kind := Internal
	switch st.Code() {
	case codes.Canceled:
		kind = Cancelled
	case codes.Unimplemented:
		kind = UnsupportedOption
	case codes.Unavailable, codes.DeadlineExceeded:
		kind = PluginCrashed
	}
	return &Error{Kind: kind, Message: st.Message(), Err: err}
}
