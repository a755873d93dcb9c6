import dev.semaphored.v1.AcquireRequest;
import dev.semaphored.v1.HoldRequest;
import dev.semaphored.v1.HoldResponse;
import dev.semaphored.v1.Lease;
import dev.semaphored.v1.LeaseValidity;
import dev.semaphored.v1.NumberedRequestId;
import dev.semaphored.v1.ReleaseRequest;
import dev.semaphored.v1.RequestId;
import dev.semaphored.v1.SemaphoreServiceGrpc;
import dev.semaphored.v1.SemaphoreServiceGrpc.SemaphoreServiceBlockingStub;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import java.util.Iterator;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/**
 * Does some work while it holds a permit: nothing but the generated stub, and the call Hold.
 *
 * <p>Hold ADDRESS SEMAPHORE LIMIT SECONDS
 *
 * <p>Exit code 0: the work was done under the permit. 3: the permit was lost, and the work stopped before another
 * program could get it. 1: there was no permit.
 */
public final class Hold {
  private static final int TTL_MS = 5_000;
  /** Between two attempts to reach the daemon. */
  private static final long PAUSE_MS = 100;

  private final SemaphoreServiceBlockingStub stub;
  private final String clientId = UUID.randomUUID().toString();
  private final HoldRequest request;
  private final CompletableFuture<Lease> granted = new CompletableFuture<>();
  /** Opened in time for the work to stop: the permit is lost. Also when it has been given back. */
  private final CountDownLatch lost = new CountDownLatch(1);

  private final Context.CancellableContext calls = Context.current().withCancellation();
  private final ScheduledExecutorService timers =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "timers");
            thread.setDaemon(true);
            return thread;
          });
  private ScheduledFuture<?> timer;
  private long epoch;
  /** The daemon's promise, less the drift of the clocks. On System.nanoTime(), a steady clock. */
  private long goodUntilNs;

  private Hold(SemaphoreServiceBlockingStub stub, String semaphore, int limit) {
    this.stub = stub;
    this.request =
        HoldRequest.newBuilder()
            .setAcquire(
                AcquireRequest.newBuilder()
                    .setRequestId(requestId(1))
                    .setSemaphore(semaphore)
                    .setLimit(limit)
                    .setWaitForever(true)
                    .setTtlMs(TTL_MS))
            .build();
  }

  private RequestId requestId(long sequence) {
    return RequestId.newBuilder()
        .setNumbered(NumberedRequestId.newBuilder().setClientId(clientId).setSequence(sequence))
        .build();
  }

  /** Counts what the daemon said. `calledNs` is when the call was sent whose answer this is. */
  private synchronized void extend(long calledNs, LeaseValidity validity) {
    if (lost.getCount() == 0 || validity.getEpoch() < epoch) {
      return; // Too late; or from a daemon that has been overtaken by another one.
    }
    long elapsedNs = TimeUnit.MILLISECONDS.toNanos(validity.getElapsedMs());
    long validForNs = TimeUnit.MILLISECONDS.toNanos(validity.getValidForMs());
    long driftNs = validForNs / 100 + elapsedNs / 10_000;
    long untilNs = calledNs + elapsedNs + validForNs - driftNs;
    epoch = validity.getEpoch();
    if (timer != null) {
      if (untilNs - goodUntilNs <= 0) {
        return;
      }
      timer.cancel(false);
    }
    goodUntilNs = untilNs;
    // The work gets a fifth of the time to stop in.
    long stopInNs = untilNs - validForNs / 5 - System.nanoTime();
    timer = timers.schedule(lost::countDown, stopInNs, TimeUnit.NANOSECONDS);
  }

  private synchronized long earlyMs() {
    return TimeUnit.NANOSECONDS.toMillis(goodUntilNs - System.nanoTime());
  }

  /** One call of Hold: reads until the stream ends. Returns normally when the permit has ended. */
  private void read() {
    long calledNs = System.nanoTime();
    Iterator<HoldResponse> events = stub.hold(request);
    while (events.hasNext()) {
      HoldResponse event = events.next();
      switch (event.getEventCase()) {
        case QUEUED:
          System.out.println("queued " + event.getQueued().getPosition());
          break;
        case GRANTED:
          extend(calledNs, event.getGranted().getValidity());
          if (!granted.complete(event.getGranted().getLease())) {
            System.out.println("goes on"); // With the lease that it had, after a broken connection.
          }
          break;
        case BEAT:
          extend(calledNs, event.getBeat());
          break;
        case RECALLED:
          System.out.println("recalled " + event.getRecalled().getRecall().getGraceMs());
          return; // The simplest answer to a recall: stop now.
        default: // LOST; and what a newer daemon may say.
          return;
      }
    }
  }

  /**
   * Calls Hold until the permit is lost or given back. After a broken connection it is called again with the same request
   * id, and goes on with the same lease, slot and token. (Who waits for a permit could do the same; this program gives up.)
   */
  private void keep() {
    try {
      while (lost.getCount() > 0) {
        try {
          calls.run(this::read);
          return;
        } catch (StatusRuntimeException error) {
          if (!granted.isDone() || error.getStatus().getCode() != Status.Code.UNAVAILABLE) {
            granted.completeExceptionally(error);
            return;
          }
          lost.await(PAUSE_MS, TimeUnit.MILLISECONDS);
        }
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    } finally {
      lost.countDown();
    }
  }

  /** Stands for what must not be done by more than LIMIT at once: stops when `lost` is opened. */
  private void work(double seconds) throws InterruptedException {
    lost.await((long) (seconds * 1e9), TimeUnit.NANOSECONDS);
  }

  private int run(double seconds) throws InterruptedException {
    Thread keeper = new Thread(this::keep, "keeper");
    keeper.setDaemon(true);
    keeper.start();
    Lease lease;
    try {
      lease = granted.get();
    } catch (ExecutionException error) {
      System.err.println("no permit: " + error.getCause().getMessage());
      return 1;
    }
    System.out.println("granted slot=" + lease.getSlots(0).getFirst() + " token=" + Long.toUnsignedString(lease.getToken()));
    work(seconds);
    try {
      if (lost.getCount() == 0) {
        System.out.println("lost early_ms=" + earlyMs());
        return 3;
      }
      ReleaseRequest release =
          ReleaseRequest.newBuilder().setRequestId(requestId(2)).setLeaseId(lease.getLeaseId()).build();
      System.out.println("released " + stub.withDeadlineAfter(5, TimeUnit.SECONDS).release(release).getReleased());
    } catch (StatusRuntimeException error) {
      System.err.println("not given back, the TTL will do it: " + error.getMessage());
    } finally {
      calls.cancel(null);
    }
    return 0;
  }

  public static void main(String[] args) throws InterruptedException {
    if (args.length != 4) {
      System.err.println("usage: Hold ADDRESS SEMAPHORE LIMIT SECONDS");
      System.exit(2);
    }
    // Only for a daemon on this machine. Elsewhere: useTransportSecurity(), and a token by withCallCredentials().
    ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
    Hold hold = new Hold(SemaphoreServiceGrpc.newBlockingStub(channel), args[1], Integer.parseUnsignedInt(args[2]));
    int code = hold.run(Double.parseDouble(args[3]));
    channel.shutdownNow();
    System.exit(code);
  }
}
