import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Asks Kafka's own codec.  Questions on standard input, answers on standard output, in order.
 *
 * A question: length (int), operation (byte), message class (short length, UTF-8), version (short),
 * argument (int), text (short length, UTF-8), bytes.  An answer: length (int), status (byte: 0
 * bytes, 1 nothing, 2 refused with a text), bytes.
 *
 * Operations: 'r' decode, pass through JSON unless it holds records, encode again ('b' without
 * JSON); the answer begins with the number of bytes left over.  'm' the same without JSON, where
 * what was read may be impossible to write: then the number is all.  'j' decode; the answer is
 * Kafka's JSON, with the size of records only.  'e' parse the request whose key is the argument and
 * form its error response for the error code in the first two bytes, with the text as message if
 * there is one.  'h' parse a request header; the answer is its size, key, version, correlation id
 * and client id.
 */
public final class CodecOracle {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (EOFException end) {
                break;
            }
            byte[] question = in.readNBytes(length);
            byte[] answer;
            int status = 0;
            try {
                answer = ask(ByteBuffer.wrap(question));
                if (answer == null) {
                    status = 1;
                    answer = new byte[0];
                }
            } catch (Exception | StackOverflowError refusal) {
                Throwable cause = refusal instanceof InvocationTargetException ? refusal.getCause() : refusal;
                status = 2;
                answer = cause.toString().getBytes(StandardCharsets.UTF_8);
            }
            out.writeInt(answer.length + 1);
            out.writeByte(status);
            out.write(answer);
        }
        out.flush();
    }

    private static String text(ByteBuffer question) {
        byte[] bytes = new byte[question.getShort()];
        question.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static byte[] ask(ByteBuffer question) throws Exception {
        byte operation = question.get();
        String name = text(question);
        short version = question.getShort();
        int argument = question.getInt();
        String text = text(question);
        ByteBuffer body = question.slice();
        switch (operation) {
            case 'r':
                return roundTrip(name, version, body, true, false);
            case 'b':
                return roundTrip(name, version, body, false, false);
            case 'm':
                return roundTrip(name, version, body, false, true);
            case 'j':
                return json(name, version, body);
            case 'e':
                return errorForm(argument, version, text, body);
            case 'h':
                return header(body);
            default:
                throw new IllegalArgumentException("operation " + operation);
        }
    }

    private static byte[] roundTrip(String name, short version, ByteBuffer body, boolean json, boolean lenient)
        throws Exception {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        message.read(new ByteBufferAccessor(body), version);
        if (json) {
            Class<?> converter = Class.forName(name + "JsonConverter");
            JsonNode node = (JsonNode) converter.getMethod("write", type, short.class).invoke(null, message, version);
            message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, node, version);
        }
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        DataOutputStream data = new DataOutputStream(result);
        data.writeInt(body.remaining());
        try {
            write(data, MessageUtil.toByteBuffer(message, version));
        } catch (RuntimeException unwritable) {
            if (!lenient) {
                throw unwritable;
            }
        }
        return result.toByteArray();
    }

    private static byte[] json(String name, short version, ByteBuffer body) throws Exception {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        message.read(new ByteBufferAccessor(body), version);
        return Class.forName(name + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false)
            .toString()
            .getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] errorForm(int key, short version, String text, ByteBuffer body) throws IOException {
        Errors error = Errors.forCode(body.getShort());
        AbstractRequest request = AbstractRequest.parseRequest(ApiKeys.forId(key), version, body.slice()).request;
        AbstractResponse response =
            request.getErrorResponse(0, text.isEmpty() ? error.exception() : error.exception(text));
        if (response == null) {
            return null;
        }
        ApiMessage data = response.data();
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        write(new DataOutputStream(result), MessageUtil.toByteBuffer(data, version));
        return result.toByteArray();
    }

    private static byte[] header(ByteBuffer frame) throws IOException {
        int size = frame.remaining();
        RequestHeader header = RequestHeader.parse(frame);
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        DataOutputStream data = new DataOutputStream(result);
        data.writeInt(size - frame.remaining());
        data.writeShort(header.apiKey().id);
        data.writeShort(header.apiVersion());
        data.writeInt(header.correlationId());
        data.write(header.clientId().getBytes(StandardCharsets.UTF_8));
        return result.toByteArray();
    }

    private static void write(DataOutputStream data, ByteBuffer buffer) throws IOException {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        data.write(bytes);
    }
}
