import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;

/** A client makes an event loop group per call. It closes the channel after the call,
 *  but shuts the group down only where the caller asked for that, so each other call
 *  leaves an epoll instance and an event descriptor behind. */
public class Main {
    static int port;

    static double env(String name, double def) {
        String v = System.getenv(name);
        return v == null ? def : Double.parseDouble(v);
    }

    static EventLoopGroup newGroup() {
        return new NioEventLoopGroup(1);
    }

    static void call(boolean release) throws Exception {
        EventLoopGroup group = newGroup();
        Channel channel = new Bootstrap().group(group).channel(NioSocketChannel.class)
                .handler(new ChannelInboundHandlerAdapter())
                .connect(InetAddress.getLoopbackAddress(), port).sync().channel();
        channel.close().sync();
        if (release) {
            group.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS).sync();
        }
    }

    static void background(Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        t.start();
    }

    static void nap(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    static void serve(ServerSocket listener) {
        while (true) {
            try (Socket s = listener.accept()) {
                s.getInputStream().read();
            } catch (IOException e) {
                // The client closed first.
            }
        }
    }

    static void segments(Path work) {
        for (int i = 0; ; i++) {
            try (FileChannel c = FileChannel.open(work.resolve("seg" + i % 4),
                    StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                nap(20);
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        System.out.println("READY " + ProcessHandle.current().pid());
        ServerSocket listener = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
        port = listener.getLocalPort();
        background(() -> serve(listener));
        background(() -> segments(Path.of(System.getenv("LB_WORK"))));
        // The first call loads Netty; it belongs to the warm-up, however long it takes.
        call(true);
        for (int i = 0; i < 5; i++) {
            call(true);
            nap(200);
        }
        System.out.println("PHASE run");
        double seconds = env("LB_SECONDS", 20), rate = env("LB_RATE", 3);
        long begin = System.nanoTime();
        int n = 0;
        while (n < rate * seconds) {
            call(false);
            call(true);
            n++;
            nap(Math.max(0, (long) (begin / 1e6 + n * 1000 / rate - System.nanoTime() / 1e6)));
        }
        System.out.println("DONE leaked=" + 2 * n);
        nap(1500);
        System.exit(0);
    }
}
