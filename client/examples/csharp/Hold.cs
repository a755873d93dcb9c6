using System.Diagnostics;
using System.Globalization;
using Grpc.Core;
using Grpc.Net.Client;
using Semaphored.V1;

/// <summary>
/// Does some work while it holds a permit: nothing but the generated stub, and the call Hold.
///
/// <para>Hold ADDRESS SEMAPHORE LIMIT SECONDS</para>
///
/// <para>Exit code 0: the work was done under the permit. 3: the permit was lost, and the work stopped before another
/// program could get it. 1: there was no permit.</para>
/// </summary>
public sealed class Hold
{
    private const uint TtlMs = 5_000;

    /// <summary>Between two attempts to reach the daemon.</summary>
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(100);

    private readonly SemaphoreService.SemaphoreServiceClient stub;
    private readonly string clientId = Guid.NewGuid().ToString();
    private readonly HoldRequest request;
    private readonly TaskCompletionSource<Lease> granted = new(TaskCreationOptions.RunContinuationsAsynchronously);

    /// <summary>Cancelled in time for the work to stop: the permit is lost. Also when it has been given back.</summary>
    private readonly CancellationTokenSource lost = new();

    /// <summary>Ends the calls of Hold.</summary>
    private readonly CancellationTokenSource calls = new();

    private readonly object mutex = new();
    private Timer? timer;
    private ulong epoch;

    /// <summary>The daemon's promise, less the drift of the clocks. On Stopwatch, a steady clock.</summary>
    private double goodUntilMs;

    private Hold(SemaphoreService.SemaphoreServiceClient stub, string semaphore, uint limit)
    {
        this.stub = stub;
        request = new HoldRequest
        {
            Acquire = new AcquireRequest
            {
                RequestId = RequestIdOf(1),
                Semaphore = semaphore,
                Limit = limit,
                WaitForever = true,
                TtlMs = TtlMs,
            },
        };
    }

    private static double NowMs() => Stopwatch.GetTimestamp() * 1e3 / Stopwatch.Frequency;

    private RequestId RequestIdOf(ulong sequence) => new()
    {
        Numbered = new NumberedRequestId { ClientId = clientId, Sequence = sequence },
    };

    /// <summary>Counts what the daemon said. `calledMs` is when the call was sent whose answer this is.</summary>
    private void Extend(double calledMs, LeaseValidity validity)
    {
        lock (mutex)
        {
            if (lost.IsCancellationRequested || validity.Epoch < epoch)
            {
                return; // Too late; or from a daemon that has been overtaken by another one.
            }
            double driftMs = validity.ValidForMs / 100.0 + validity.ElapsedMs / 10_000.0;
            double untilMs = calledMs + validity.ElapsedMs + validity.ValidForMs - driftMs;
            epoch = validity.Epoch;
            if (timer != null && untilMs <= goodUntilMs)
            {
                return;
            }
            goodUntilMs = untilMs;
            // The work gets a fifth of the time to stop in.
            double stopInMs = Math.Max(0, untilMs - validity.ValidForMs / 5.0 - NowMs());
            timer?.Dispose();
            timer = new Timer(_ => lost.Cancel(), null, (long)stopInMs, Timeout.Infinite);
        }
    }

    private long EarlyMs()
    {
        lock (mutex)
        {
            return (long)(goodUntilMs - NowMs());
        }
    }

    /// <summary>One call of Hold: reads until the stream ends. Returns normally when the permit has ended.</summary>
    private async Task ReadAsync()
    {
        double calledMs = NowMs();
        using AsyncServerStreamingCall<HoldResponse> call = stub.Hold(request, cancellationToken: calls.Token);
        await foreach (HoldResponse each in call.ResponseStream.ReadAllAsync())
        {
            switch (each.EventCase)
            {
                case HoldResponse.EventOneofCase.Queued:
                    Console.WriteLine($"queued {each.Queued.Position}");
                    break;
                case HoldResponse.EventOneofCase.Granted:
                    Extend(calledMs, each.Granted.Validity);
                    if (!granted.TrySetResult(each.Granted.Lease))
                    {
                        Console.WriteLine("goes on"); // With the lease that it had, after a broken connection.
                    }
                    break;
                case HoldResponse.EventOneofCase.Beat:
                    Extend(calledMs, each.Beat);
                    break;
                case HoldResponse.EventOneofCase.Recalled:
                    Console.WriteLine($"recalled {each.Recalled.Recall.GraceMs}");
                    return; // The simplest answer to a recall: stop now.
                default: // Lost; and what a newer daemon may say.
                    return;
            }
        }
    }

    /// <summary>
    /// Calls Hold until the permit is lost or given back. After a broken connection it is called again with the same
    /// request id, and goes on with the same lease, slot and token. (Who waits for a permit could do the same; this
    /// program gives up.)
    /// </summary>
    private async Task KeepAsync()
    {
        try
        {
            while (!lost.IsCancellationRequested)
            {
                try
                {
                    await ReadAsync();
                    return;
                }
                catch (RpcException error)
                {
                    if (!granted.Task.IsCompletedSuccessfully || error.StatusCode != StatusCode.Unavailable)
                    {
                        granted.TrySetException(error);
                        return;
                    }
                }
                await Task.Delay(Pause);
            }
        }
        finally
        {
            lost.Cancel();
        }
    }

    /// <summary>Stands for what must not be done by more than LIMIT at once: stops when `stop` is cancelled.</summary>
    private static async Task WorkAsync(double seconds, CancellationToken stop)
    {
        try
        {
            await Task.Delay(TimeSpan.FromSeconds(seconds), stop);
        }
        catch (OperationCanceledException)
        {
            // The permit is lost: `stop` says so.
        }
    }

    private async Task<int> RunAsync(double seconds)
    {
        Task keeper = Task.Run(KeepAsync);
        Lease lease;
        try
        {
            lease = await granted.Task;
        }
        catch (RpcException error)
        {
            Console.Error.WriteLine($"no permit: {error.Status.Detail}");
            return 1;
        }
        Console.WriteLine($"granted slot={lease.Slots[0].First} token={lease.Token}");
        await WorkAsync(seconds, lost.Token);
        if (lost.IsCancellationRequested)
        {
            Console.WriteLine($"lost early_ms={EarlyMs()}");
            return 3;
        }
        try
        {
            ReleaseResponse released = await stub.ReleaseAsync(
                new ReleaseRequest { RequestId = RequestIdOf(2), LeaseId = lease.LeaseId },
                deadline: DateTime.UtcNow.AddSeconds(5));
            Console.WriteLine($"released {released.Released}");
        }
        catch (RpcException error)
        {
            Console.Error.WriteLine($"not given back, the TTL will do it: {error.Status.Detail}");
        }
        calls.Cancel();
        await keeper;
        return 0;
    }

    public static async Task<int> Main(string[] arguments)
    {
        if (arguments.Length != 4)
        {
            Console.Error.WriteLine("usage: Hold ADDRESS SEMAPHORE LIMIT SECONDS");
            return 2;
        }
        // Only for a daemon on this machine. Elsewhere: https://, and a token by CallCredentials.
        using GrpcChannel channel = GrpcChannel.ForAddress("http://" + arguments[0]);
        var hold = new Hold(
            new SemaphoreService.SemaphoreServiceClient(channel),
            arguments[1],
            uint.Parse(arguments[2], CultureInfo.InvariantCulture));
        return await hold.RunAsync(double.Parse(arguments[3], CultureInfo.InvariantCulture));
    }
}
