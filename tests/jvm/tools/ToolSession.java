import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs command line tools of Kafka one after the other in one JVM, because most of a tool's time is the start of its own. Each line of standard
 * input is a call: the class and its arguments, each in base64, apart by blanks. The answer is a line as well: exit code, standard output and standard
 * error, the latter two in base64, "-" for nothing.
 *
 * A tool that ends the process by Exit is told to do so in a thread of its own, which never goes on: what would come after is not run, as in a
 * process of its own.
 */
public class ToolSession {
    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            answers.println(call(line.split(" ")));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // threads of tools that ended are still there
    }

    private static String call(String[] words) throws Exception {
        for (int i = 0; i < words.length; i++)
            words[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        AtomicInteger status = new AtomicInteger();
        CountDownLatch ended = new CountDownLatch(1);
        Exit.Procedure exit = (code, message) -> {
            status.set(code);
            if (message != null)
                System.err.println(message);
            ended.countDown();
            while (true)
                LockSupport.park();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread tool = new Thread(() -> {
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (Throwable e) {
                e.printStackTrace();
                status.set(1);
            }
            ended.countDown();
        }, "tool");
        tool.setDaemon(true);
        tool.start();
        ended.await();
        return status.get() + " " + encoded(out) + " " + encoded(err);
    }

    private static String encoded(ByteArrayOutputStream b) {
        return b.size() == 0 ? "-" : Base64.getEncoder().encodeToString(b.toByteArray());
    }
}
