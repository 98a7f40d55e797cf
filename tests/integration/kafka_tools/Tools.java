import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * Runs Kafka's command line programs one after the other in one virtual machine.
 *
 * <p>A line of input is `LIMIT_MS CLASS GIVEN ARGUMENT...`, where what is given on standard input and
 * the arguments are base64 (`-` for empty). A line of output is `STATUS OUT ERR`, with what was
 * printed as base64; the status is -1 when the program did not end in time. Each program has classes
 * of its own, so that none sees the static state of another.
 */
public final class Tools {
    /** Thrown by exit; no Exception, so that few programs catch it. */
    private static final class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    /** A stream whose target changes from program to program. */
    private static final class Switch extends OutputStream {
        private volatile ByteArrayOutputStream target = new ByteArrayOutputStream();

        ByteArrayOutputStream renew() {
            ByteArrayOutputStream old = target;
            target = new ByteArrayOutputStream();
            return old;
        }

        @Override
        public void write(int b) {
            target.write(b);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            target.write(bytes, from, count);
        }
    }

    private static final Switch OUT = new Switch();
    private static final Switch ERR = new Switch();

    public static void main(String[] folders) throws Exception {
        List<URL> path = new ArrayList<>();
        for (File jar : new File(folders[0]).listFiles()) {
            path.add(jar.toURI().toURL());
        }
        URL[] jars = path.toArray(new URL[0]);
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.setOut(new PrintStream(OUT, true));
        System.setErr(new PrintStream(ERR, true));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String[] arguments = new String[words.length - 3];
            for (int n = 0; n < arguments.length; n++) {
                arguments[n] = new String(decoded(words[n + 3]), StandardCharsets.UTF_8);
            }
            System.setIn(new ByteArrayInputStream(decoded(words[2])));
            OUT.renew();
            ERR.renew();
            int status = run(jars, words[1], arguments, Long.parseLong(words[0]));
            System.out.flush();
            System.err.flush();
            answers.println(status + " " + encoded(OUT.renew()) + " " + encoded(ERR.renew()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(URL[] jars, String name, String[] arguments, long limitMs)
            throws Exception {
        int[] status = {-1};
        ClassLoader parent = ClassLoader.getPlatformClassLoader();
        URLClassLoader loader = new URLClassLoader(jars, parent);
        Thread thread = new Thread(() -> {
            int[] said = {Integer.MIN_VALUE};
            List<Runnable> hooks = new ArrayList<>();
            int code = 0;
            try {
                exits(loader, said, hooks);
                Class<?> main = loader.loadClass(name);
                main.getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException failure) {
                if (!(failure.getCause() instanceof Ended)) {
                    StringWriter text = new StringWriter();
                    failure.getCause().printStackTrace(new PrintWriter(text, true));
                    System.err.print(text);
                    code = 1;
                }
            } catch (ReflectiveOperationException failure) {
                System.err.println(failure);
                code = 99;
            }
            hooks.forEach(Runnable::run);
            status[0] = said[0] == Integer.MIN_VALUE ? code : said[0];
        });
        thread.setContextClassLoader(loader);
        thread.setDaemon(true);
        thread.start();
        thread.join(limitMs);
        return status[0];
    }

    /** Lets the program's exit end its thread only; the first status counts. Keeps its hooks. */
    private static void exits(ClassLoader loader, int[] said, List<Runnable> hooks)
            throws ReflectiveOperationException {
        Class<?> exit = loader.loadClass("org.apache.kafka.common.utils.Exit");
        Class<?> procedure = loader.loadClass("org.apache.kafka.common.utils.Exit$Procedure");
        Object ending = Proxy.newProxyInstance(loader, new Class<?>[] {procedure}, (a, b, words) -> {
            if (said[0] == Integer.MIN_VALUE) {
                said[0] = (Integer) words[0];
            }
            throw new Ended();
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, ending);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, ending);
        Class<?> adder = loader.loadClass("org.apache.kafka.common.utils.Exit$ShutdownHookAdder");
        Object adding = Proxy.newProxyInstance(loader, new Class<?>[] {adder}, (a, b, words) -> {
            hooks.add((Runnable) words[1]);
            return null;
        });
        exit.getMethod("setShutdownHookAdder", adder).invoke(null, adding);
    }

    private static byte[] decoded(String word) {
        return word.equals("-") ? new byte[0] : Base64.getDecoder().decode(word);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        String text = Base64.getEncoder().encodeToString(bytes.toByteArray());
        return text.isEmpty() ? "-" : text;
    }
}
