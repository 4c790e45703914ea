package dev.fdguard.junit;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Fails a test that leaves descriptors behind, with the line that opened them if the tests run under
 * {@code fdguard trace}. Use it with {@code @ExtendWith(FdguardExtension.class)}, first of all
 * extensions, or register it for all tests. Tests of one process must not run in parallel.
 */
public final class FdguardExtension implements BeforeEachCallback, AfterEachCallback {
    /** Milliseconds that other threads have to close what they hold. */
    private static final long SETTLE_MS = 1000;

    private static final ExtensionContext.Namespace OWN = ExtensionContext.Namespace.create(FdguardExtension.class);

    // The JVM keeps a socket from the first close of a socket on. From here on it is there.
    static {
        try {
            new ServerSocket(0, 1, InetAddress.getLoopbackAddress()).close();
        } catch (IOException noNetwork) {
            // Then the tests have none, too.
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) throws IOException {
        context.getStore(OWN).put("before", descriptors());
    }

    @Override
    @SuppressWarnings("unchecked")
    public void afterEach(ExtensionContext context) throws IOException, InterruptedException {
        Map<Integer, String> before = (Map<Integer, String>) context.getStore(OWN).get("before", Map.class);
        long until = System.nanoTime() + SETTLE_MS * 1_000_000;
        Map<Integer, String> left = left(before);
        while (!left.isEmpty() && System.nanoTime() < until) {
            Thread.sleep(10);
            left = left(before);
        }
        // What the test itself threw is more important; JUnit shows this one as suppressed.
        if (!left.isEmpty()) {
            throw new LeftBehindError(text(left));
        }
    }

    private static Map<Integer, String> left(Map<Integer, String> before) throws IOException {
        Map<Integer, String> now = descriptors();
        now.entrySet().removeIf(one -> one.getValue().equals(before.get(one.getKey())) || isOfTheRuntime(one.getValue()));
        return now;
    }

    /** The JVM keeps the archives from which it loads classes, and opens random sources once. */
    private static boolean isOfTheRuntime(String target) {
        return target.endsWith(".jar")
                || target.startsWith(System.getProperty("java.home") + "/")
                || target.equals("/dev/random")
                || target.equals("/dev/urandom");
    }

    /** Targets by number, without the descriptor that this listing itself needs. */
    private static Map<Integer, String> descriptors() throws IOException {
        Map<Integer, String> found = new TreeMap<>();
        List<Path> names = new ArrayList<>();
        try (var listing = Files.newDirectoryStream(Path.of("/proc/self/fd"))) {
            listing.forEach(names::add);
        }
        for (Path name : names) {
            try {
                found.put(Integer.valueOf(name.getFileName().toString()), Files.readSymbolicLink(name).toString());
            } catch (IOException closedMeanwhile) {
                // Nothing to say about it.
            }
        }
        return found;
    }

    private static String text(Map<Integer, String> left) {
        TraceReport report = TraceReport.ofThisProcess();
        String count = left.size() == 1 ? "1 descriptor" : left.size() + " descriptors";
        StringBuilder text = new StringBuilder("fdguard: " + count + " left behind");
        left.forEach((number, target) -> text.append(report.describe(number, target)));
        return text.toString();
    }

    /** What a test left behind. Its own stack would say nothing. */
    public static final class LeftBehindError extends AssertionError {
        private static final long serialVersionUID = 1;

        LeftBehindError(String message) {
            super(message);
            setStackTrace(new StackTraceElement[0]);
        }
    }
}
