import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.lang.ref.SoftReference;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.http.HttpClient;
import java.nio.channels.Selector;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.WatchService;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Holds descriptors in every way, prints which, and waits for orders. */
public class WhyJava {
    static class Session {
        FileInputStream log;

        Session(FileInputStream log) {
            this.log = log;
        }
    }

    static final List<Session> sessions = new ArrayList<>();
    static final Map<Integer, Socket> sockets = new ConcurrentHashMap<>();
    static final Set<Stream<String>> streams = new HashSet<>();
    static final List<DirectoryStream<Path>> scans = new ArrayList<>();
    static final List<Selector> selectors = new ArrayList<>();
    static final List<Socket> closed = new ArrayList<>();
    static final FileInputStream[] reused = new FileInputStream[8];
    static final ThreadLocal<FileInputStream> local = new ThreadLocal<>();

    static final Map<Integer, SoftReference<FileInputStream>> soft = new ConcurrentHashMap<>();
    static final EnumMap<TimeUnit, FileInputStream> byUnit = new EnumMap<>(TimeUnit.class);
    static final List<HttpClient> clients = new ArrayList<>();

    static final List<WatchService> watches = new ArrayList<>();

    interface Opening {
        void run() throws Exception;
    }

    static TreeSet<Integer> open() throws Exception {
        TreeSet<Integer> fds = new TreeSet<>();
        for (String name : new java.io.File("/proc/self/fd").list()) {
            try {
                Path target = Files.readSymbolicLink(Path.of("/proc/self/fd", name));
                // The JVM's compilers read the limits of its cgroup for a moment, at any time.
                if (!target.startsWith("/sys")) {
                    fds.add(Integer.valueOf(name));
                }
            } catch (java.nio.file.NoSuchFileException e) {
                // The directory itself is closed by now.
            }
        }
        return fds;
    }

    static void say(String name, Opening opening) throws Exception {
        Set<Integer> before = open();
        opening.run();
        StringBuilder line = new StringBuilder(name);
        for (int fd : open()) {
            if (!before.contains(fd)) {
                line.append(' ').append(fd);
            }
        }
        System.out.println(line);
    }

    static FileInputStream file() throws Exception {
        return new FileInputStream("/proc/self/stat");
    }

    static void drop() throws Exception {
        for (int i = 0; i < 3; i++) {
            file();
        }
    }

    static void background(Opening body) throws Exception {
        CountDownLatch started = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            try {
                body.run();
                started.countDown();
                Thread.sleep(1_000_000);
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }, "keeper");
        thread.setDaemon(true);
        thread.start();
        started.await();
    }

    static void holdInSlot(CountDownLatch opened) {
        try {
            FileInputStream held = file();
            opened.countDown();
            Thread.sleep(1_000_000);
            System.out.println(held.available());
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    static void connect(ServerSocket server, List<Socket> into) throws Exception {
        into.add(new Socket(server.getInetAddress(), server.getLocalPort()));
        into.add(server.accept());
    }

    // What makes the heap large, if that is wanted: megabytes, and objects.
    static final byte[] large = new byte[Integer.getInteger("large", 0) << 20];
    static final Object[] many = new Object[Integer.getInteger("many", 0)];

    public static void main(String[] args) throws Exception {
        for (int at = 0; at < many.length; at++) many[at] = new Object();
        // What the first of each loads is not its own.
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        List<Socket> first = new ArrayList<>();
        connect(server, first);
        Selector.open().close();
        Files.list(Path.of("/")).close();
        Files.lines(Path.of("/proc/self/status")).close();

        say("sessions", () -> {
            for (int i = 0; i < 5; i++) {
                sessions.add(new Session(file()));
            }
        });
        say("sockets", () -> {
            List<Socket> made = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                connect(server, made);
            }
            for (Socket socket : made) {
                sockets.put(sockets.size(), socket);
            }
        });
        say("streams", () -> {
            for (int i = 0; i < 4; i++) {
                streams.add(Files.lines(Path.of("/proc/self/status")));
            }
        });
        say("scans", () -> {
            for (int i = 0; i < 3; i++) {
                scans.add(Files.newDirectoryStream(Path.of("/")));
            }
        });
        say("selectors", () -> selectors.add(Selector.open()));
        say("local", () -> background(() -> local.set(file())));
        say("slot", () -> {
            CountDownLatch opened = new CountDownLatch(1);
            Thread thread = new Thread(() -> holdInSlot(opened), "waiter");
            thread.setDaemon(true);
            thread.start();
            opened.await();
        });
        // Closed sockets keep their numbers, which files then have.
        for (int i = 0; i < 4; i++) {
            connect(server, closed);
        }
        for (Socket socket : closed) {
            socket.close();
        }
        say("reused", () -> {
            for (int i = 0; i < reused.length; i++) {
                reused[i] = file();
            }
        });
        say("soft", () -> {
            for (int i = 0; i < 3; i++) {
                soft.put(i, new SoftReference<>(file()));
            }
        });
        say("by-unit", () -> {
            byUnit.put(TimeUnit.DAYS, file());
            byUnit.put(TimeUnit.HOURS, file());
        });
        // What they load has no room in a heap that is nearly too large.
        int wanted = many.length > 0 ? 0 : 2;
        if (wanted > 0) {
            HttpClient.newHttpClient();
        }
        say("clients", () -> {
            for (int i = 0; i < wanted; i++) {
                clients.add(HttpClient.newHttpClient());
            }
        });
        for (int i = 0; i < 2; i++) {
            watches.add(FileSystems.getDefault().newWatchService());
        }
        // Its pair of sockets is in an array of numbers, which is not read.
        StringBuilder watched = new StringBuilder("watches");
        for (int fd : open()) {
            Path link = Path.of("/proc/self/fd/" + fd);
            if (Files.readSymbolicLink(link).toString().contains("inotify")) {
                watched.append(' ').append(fd);
            }
        }
        System.out.println(watched);
        say("garbage", WhyJava::drop);
        System.out.println("READY");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println("open " + open().size() + " " + sockets.size());
        }
        System.exit(7);
    }
}
