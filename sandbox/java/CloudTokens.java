import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Takes the tokens of Amazon MSK with IAM and of Google's Managed Kafka, as far as that goes without their clouds.
 *
 * Of MSK: the URL, its action, the region (option {@code region} of the login module), its times by this host's clock, and
 * that a signature is there; who signed it is not proven. The principal is the name of a role's session where the session's
 * token is {@code session:NAME:END} (seconds since 1970), as our stand-in for STS makes them, and else the access key. Refusals
 * have the words of AWS. Of Google: form, header, end and account.
 */
public class CloudTokens implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter DATE = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'");
    private static final long SKEW_S = 60;

    private String region;

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> modules) {
        region = String.valueOf(modules.get(0).getOptions().get("region"));
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback) {
                validate((OAuthBearerValidatorCallback) callback);
            } else if (callback instanceof OAuthBearerExtensionsValidatorCallback) {
                OAuthBearerExtensionsValidatorCallback given = (OAuthBearerExtensionsValidatorCallback) callback;
                given.inputExtensions().map().keySet().forEach(given::valid);
            } else {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private void validate(OAuthBearerValidatorCallback callback) {
        String value = callback.tokenValue();
        try {
            callback.token(value.contains(".") ? ofGoogle(value) : ofMsk(value));
        } catch (RuntimeException e) {
            callback.error(e instanceof Refused ? e.getMessage() : "Invalid authentication payload", null, null);
        }
    }

    private Token ofMsk(String value) {
        URI url = URI.create(text(value));
        Map<String, String> said = new HashMap<>();
        for (String pair : url.getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            said.put(parts[0], URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        String[] scope = said.get("X-Amz-Credential").split("/");
        if (!scope[2].equals(region) || !url.getHost().equals("kafka." + region + ".amazonaws.com")) {
            throw new Refused("Credential should be scoped to a valid region, not '" + scope[2] + "'");
        }
        long signed = LocalDateTime.parse(said.get("X-Amz-Date"), DATE).toEpochSecond(ZoneOffset.UTC);
        long now = System.currentTimeMillis() / 1000;
        long end = signed + Long.parseLong(said.get("X-Amz-Expires"));
        if (signed > now + SKEW_S) {
            throw new Refused("Signature not yet current: it is of " + signed + ", and now is " + now);
        }
        if (end <= now) {
            throw new Refused("Signature expired: it ended at " + end + ", and now is " + now);
        }
        boolean whole = said.getOrDefault("X-Amz-Signature", "").matches("[0-9a-f]{64}");
        if (!whole || !"kafka-cluster:Connect".equals(said.get("Action")) || !scope[3].equals("kafka-cluster")) {
            throw new Refused("Access denied");
        }
        String[] session = said.getOrDefault("X-Amz-Security-Token", "").split(":");
        if (session.length == 3) {
            long over = Long.parseLong(session[2]);
            if (over <= now + 1) {
                throw new Refused(over <= now ? "Access denied" : "Session too short");
            }
            end = Math.min(end, over);
        }
        return new Token(value, session.length == 3 ? session[1] : scope[0], signed * 1000, end * 1000);
    }

    private static Token ofGoogle(String value) {
        String[] parts = value.split("\\.");
        if (!"GOOG_OAUTH2_TOKEN".equals(field(text(parts[0]), "alg")) || text(parts[2]).isEmpty()) {
            throw new Refused("invalid_token");
        }
        String claims = text(parts[1]);
        long end = (long) Double.parseDouble(field(claims, "exp"));
        if (end * 1000 <= System.currentTimeMillis()) {
            throw new Refused("invalid_token");
        }
        return new Token(value, field(claims, "sub"), (long) Double.parseDouble(field(claims, "iat")) * 1000, end * 1000);
    }

    private static String text(String base64) {
        return new String(Base64.getUrlDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": *\"?([^\",}]+)").matcher(json);
        if (!found.find()) {
            throw new Refused("invalid_token");
        }
        return found.group(1);
    }

    @Override
    public void close() { }

    private static class Refused extends RuntimeException {
        Refused(String words) {
            super(words);
        }
    }

    private static class Token implements OAuthBearerToken {
        private final String value;
        private final String principal;
        private final long start;
        private final long end;

        Token(String value, String principal, long start, long end) {
            this.value = value;
            this.principal = principal;
            this.start = start;
            this.end = end;
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return end;
        }

        @Override
        public String principalName() {
            return principal;
        }

        @Override
        public Long startTimeMs() {
            return start;
        }
    }
}
