package interop;

import java.util.concurrent.CompletableFuture;

/** How many lines the job has written, for a source that begins after that. */
final class Written {
    private static final CompletableFuture<Void> REACHED = new CompletableFuture<>();
    private static int awaited = Integer.MAX_VALUE;
    private static int count;

    private Written() {}

    static synchronized CompletableFuture<Void> atLeast(int lines) {
        awaited = lines;
        add(0);
        return REACHED;
    }

    static synchronized void add(int lines) {
        count += lines;
        if (count >= awaited) {
            REACHED.complete(null);
        }
    }
}
