import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The repaired client: one event loop group for all calls, a channel per call. Server
 *  and client run in this process, and every connection is closed after its call. */
public class Main {
    static final EventLoopGroup group = new NioEventLoopGroup(2);
    static InetSocketAddress address;

    static double env(String name, double def) {
        String v = System.getenv(name);
        return v == null ? def : Double.parseDouble(v);
    }

    static void call() throws Exception {
        Channel channel = new Bootstrap().group(group).channel(NioSocketChannel.class)
                .handler(new ChannelInboundHandlerAdapter())
                .connect(address).sync().channel();
        channel.close().sync();
    }

    static void nap(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
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
        Channel server = new ServerBootstrap().group(group).channel(NioServerSocketChannel.class)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel c) {
                        c.pipeline().addLast(new ChannelInboundHandlerAdapter());
                    }
                }).bind(InetAddress.getLoopbackAddress(), 0).sync().channel();
        address = (InetSocketAddress) server.localAddress();
        Thread t = new Thread(() -> segments(Path.of(System.getenv("LB_WORK"))));
        t.setDaemon(true);
        t.start();
        call();
        for (int i = 0; i < 20; i++) {
            call();
            nap(50);
        }
        System.out.println("PHASE run");
        double seconds = env("LB_SECONDS", 20), rate = env("LB_RATE", 20);
        long begin = System.nanoTime();
        int n = 0;
        while (n < rate * seconds) {
            call();
            n++;
            nap(Math.max(0, (long) (begin / 1e6 + n * 1000 / rate - System.nanoTime() / 1e6)));
        }
        System.out.println("DONE leaked=0 calls=" + n);
        nap(1500);
        System.exit(0);
    }
}
