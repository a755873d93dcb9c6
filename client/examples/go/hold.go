// Does some work while it holds a permit: nothing but the generated stub, and the call Hold.
//
//	hold ADDRESS SEMAPHORE LIMIT SECONDS
//
// Exit code 0: the work was done under the permit. 3: the permit was lost, and the work stopped before another program could
// get it. 1: there was no permit.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "semaphored.dev/v1"
)

const (
	ttl = 5 * time.Second
	// Between two attempts to reach the daemon.
	pause = 100 * time.Millisecond
)

// When the permit ends, and whether it has. `lost` is cancelled in time for the work to stop.
type permit struct {
	lost context.Context
	lose context.CancelFunc
	told bool // The first grant was handed over.

	mutex     sync.Mutex
	epoch     uint64
	goodUntil time.Time // The daemon's promise, less the drift of the clocks.
	timer     *time.Timer
}

// Counts what the daemon said. `called` is when the call was sent whose answer this is: time.Now() reads the steady clock.
func (p *permit) extend(called time.Time, validity *pb.LeaseValidity) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.lost.Err() != nil || validity.GetEpoch() < p.epoch {
		return // Too late; or from a daemon that has been overtaken by another one.
	}
	elapsed := time.Duration(validity.GetElapsedMs()) * time.Millisecond
	validFor := time.Duration(validity.GetValidForMs()) * time.Millisecond
	drift := validFor/100 + elapsed/10000
	goodUntil := called.Add(elapsed + validFor - drift)
	p.epoch = validity.GetEpoch()
	if !goodUntil.After(p.goodUntil) {
		return
	}
	p.goodUntil = goodUntil
	// The work gets a fifth of the time to stop in.
	stopAt := time.Until(goodUntil.Add(-validFor / 5))
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(stopAt, p.lose)
}

func (p *permit) early() time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return time.Until(p.goodUntil)
}

var errLost = errors.New("the daemon says that the permit has ended")

// One call of Hold: reads until the stream ends, and says why it did.
func (p *permit) read(stub pb.SemaphoreServiceClient, request *pb.HoldRequest, granted chan<- *pb.Lease) error {
	called := time.Now()
	stream, err := stub.Hold(p.lost, request)
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		switch told := event.Event.(type) {
		case *pb.HoldResponse_Queued:
			fmt.Println("queued", told.Queued.GetPosition())
		case *pb.HoldResponse_Granted:
			p.extend(called, told.Granted.GetValidity())
			if p.told {
				fmt.Println("goes on") // With the lease that it had, after a broken connection.
			} else {
				granted <- told.Granted.GetLease()
			}
			p.told = true
		case *pb.HoldResponse_Beat:
			p.extend(called, told.Beat)
		case *pb.HoldResponse_Recalled:
			fmt.Println("recalled", told.Recalled.GetRecall().GetGraceMs(), told.Recalled.GetRecall().GetReason())
			p.lose() // The simplest answer to a recall: stop now.
		case *pb.HoldResponse_Lost:
			return errLost
		}
	}
}

// Calls Hold until the permit is lost or given back. After a broken connection it is called again with the same request id,
// and goes on with the same lease, slot and token. (Who waits for a permit could do the same; this program gives up.)
func (p *permit) keep(stub pb.SemaphoreServiceClient, request *pb.HoldRequest, granted chan<- *pb.Lease) error {
	for {
		err := p.read(stub, request, granted)
		if err == io.EOF || p.lost.Err() != nil {
			return nil // Given back by Release; or it is too late to go on.
		}
		if err == errLost || !p.told || status.Code(err) != codes.Unavailable {
			return err
		}
		select {
		case <-p.lost.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func requestID(sequence uint64) *pb.RequestId {
	numbered := &pb.NumberedRequestId{ClientId: clientID, Sequence: sequence}
	return &pb.RequestId{RequestId: &pb.RequestId_Numbered{Numbered: numbered}}
}

var clientID = func() string {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return hex.EncodeToString(random)
}()

// Stands for what must not be done by more than LIMIT at once: looks at `lost` between its steps.
func work(lost <-chan struct{}, duration time.Duration) {
	end := time.After(duration)
	step := time.NewTicker(50 * time.Millisecond)
	defer step.Stop()
	for {
		select {
		case <-lost:
			return
		case <-end:
			return
		case <-step.C:
		}
	}
}

func run(address, semaphore string, limit uint32, duration time.Duration) int {
	// Only for a daemon on this machine. Elsewhere: grpc.WithTransportCredentials, and a token by grpc.WithPerRPCCredentials.
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer connection.Close()
	stub := pb.NewSemaphoreServiceClient(connection)

	lost, lose := context.WithCancel(context.Background())
	defer lose()
	held := &permit{lost: lost, lose: lose}
	request := &pb.HoldRequest{Acquire: &pb.AcquireRequest{
		RequestId: requestID(1), Semaphore: semaphore, Limit: limit, WaitForever: true, TtlMs: uint32(ttl.Milliseconds()),
	}}
	granted := make(chan *pb.Lease, 1)
	ended := make(chan error, 1)
	go func() {
		err := held.keep(stub, request, granted)
		lose()
		ended <- err
	}()

	var leaseID string
	select {
	case lease := <-granted:
		leaseID = lease.GetLeaseId()
		fmt.Printf("granted slot=%d token=%d\n", lease.GetSlots()[0].GetFirst(), lease.GetToken())
	case err := <-ended:
		fmt.Fprintln(os.Stderr, "no permit:", err)
		return 1
	}
	work(lost.Done(), duration)
	if lost.Err() != nil {
		fmt.Printf("lost early_ms=%d\n", held.early().Milliseconds())
		return 3
	}
	answer, err := stub.Release(context.Background(), &pb.ReleaseRequest{RequestId: requestID(2), LeaseId: leaseID})
	if err != nil {
		fmt.Fprintln(os.Stderr, "not given back, the TTL will do it:", err)
		return 0
	}
	fmt.Println("released", answer.GetReleased())
	return 0
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: hold ADDRESS SEMAPHORE LIMIT SECONDS")
		os.Exit(2)
	}
	limit, err := strconv.ParseUint(os.Args[3], 10, 32)
	if err != nil {
		fmt.Fprintln(os.Stderr, "LIMIT:", err)
		os.Exit(2)
	}
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "SECONDS:", err)
		os.Exit(2)
	}
	os.Exit(run(os.Args[1], os.Args[2], uint32(limit), time.Duration(seconds*float64(time.Second))))
}
