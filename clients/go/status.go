package oncelog

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// Meaning of a status without our ErrorInfo: it comes from gRPC itself, or from something in
// between.
var plainCodes = map[codes.Code]*Kind{
	codes.Unavailable:      ErrUnavailable,
	codes.Canceled:         ErrUnavailable,
	codes.DeadlineExceeded: ErrRequestTimeout,
	// A message beyond a limit, most often: the same again would end the same way.
	codes.ResourceExhausted: ErrInvalidRequest,
	codes.InvalidArgument:   ErrInvalidRequest,
	codes.OutOfRange:        ErrInvalidRequest,
	codes.Unimplemented:     ErrNotSupported,
	codes.DataLoss:          ErrCorruptLog,
}

// noConnection begins gRPC's text for a call that was not sent; it has nothing else for it.
const noConnection = `connection error: desc = "transport: Error while dialing`

// fromRPC returns the error that a failed gRPC call to address stands for. A caller's context
// that ended is its own error.
func fromRPC(ctx context.Context, address string, err error) error {
	if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
		return cause
	}
	if own := (*Error)(nil); errors.As(err, &own) {
		return own
	}
	st := status.Convert(err)
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == "oncelog" {
			e := fromInfo(info, st.Message())
			e.told = true
			return e
		}
	}
	k := plainCodes[st.Code()]
	if k == nil {
		return fail(ErrInternal, "%s: %s: %s", address, st.Code(), st.Message())
	}
	e := fail(k, "%s: %s", address, st.Message())
	e.unsent = strings.HasPrefix(st.Message(), noConnection)
	return e
}

func fromInfo(info *errdetails.ErrorInfo, message string) *Error {
	k := travelling(info.GetReason())
	metadata := info.GetMetadata()
	if k == nil {
		// A newer server: its own word says whether to retry.
		k = ErrInternal
		if metadata["retriable"] == "true" {
			k = ErrUnavailable
		}
		return fail(k, "%s: %s", info.GetReason(), message)
	}
	e := fail(k, "%s", message)
	number := func(name string, bits int, none int64) int64 {
		n, err := strconv.ParseInt(metadata[name], 10, bits)
		if err != nil {
			return none
		}
		return n
	}
	e.Topic, e.ProducerName = metadata["topic"], metadata["producer_name"]
	e.Partition = int32(number("partition", 32, -1))
	e.Offset = number("offset", 64, -1)
	e.LogStartOffset = number("log_start_offset", 64, -1)
	e.HighWatermark = number("high_watermark", 64, -1)
	e.NextOffset = number("next_offset", 64, -1)
	e.LastSequence = number("last_sequence", 64, -1)
	e.CurrentEpoch = int32(number("current_epoch", 32, -1))
	e.LeaderID = int32(number("leader_id", 32, 0))
	e.LeaderAddress = metadata["leader_address"]
	e.RetryAfter = time.Duration(number("retry_after_ms", 32, 0)) * time.Millisecond
	e.Field, e.Limit = metadata["field"], metadata["limit"]
	e.Lacks = Need{metadata["principal"], metadata["operation"], metadata["kind"], metadata["name"]}
	return e
}

// verdictKind returns the kind of a final verdict, by its name; nil: this client does not know it.
func verdictKind(v pb.Verdict) *Kind {
	return travelling(strings.TrimPrefix(v.String(), "VERDICT_"))
}

// A verdict's number gives its class.
func isKnown(v pb.Verdict) bool { return pb.Verdict_name[int32(v)] != "" }

func isStored(v pb.Verdict) bool { return isKnown(v) && v > 0 && v < 10 }

func isRetriableVerdict(v pb.Verdict) bool { return isKnown(v) && v >= 30 }

// answerText is the verdict, and the node's message.
func answerText(result *pb.BatchResult) string {
	name := strings.TrimPrefix(result.GetVerdict().String(), "VERDICT_")
	if text := result.GetMessage(); text != "" {
		return name + ": " + text
	}
	return name
}

// fromVerdict returns the error of a verdict that is neither a success nor retriable. One that
// this client does not know counts as an invalid batch: it must not be repeated blindly.
func fromVerdict(result *pb.BatchResult, tp TopicPartition) *Error {
	text := result.GetMessage()
	if text == "" {
		text = result.GetVerdict().String()
	}
	k := verdictKind(result.GetVerdict())
	if k == nil {
		k = ErrInvalidBatch
	}
	switch k {
	case ErrFenced:
		text += " (current epoch " + strconv.Itoa(int(result.GetCurrentEpoch())) +
			"): another producer has taken over"
	case ErrOutOfOrder:
		text += " (last stored sequence " + strconv.FormatInt(result.GetLastSequence(), 10) + ")"
	case ErrOffsetMismatch:
		text += " (next offset " + strconv.FormatInt(result.GetNextOffset(), 10) + ")"
	}
	e := fail(k, "%s: %s", tp, text)
	e.Topic, e.Partition = tp.Topic, tp.Partition
	e.CurrentEpoch, e.LastSequence = result.GetCurrentEpoch(), result.GetLastSequence()
	e.NextOffset = result.GetNextOffset()
	return e
}
