package objstore

import (
	"strconv"
	"time"
)

// Keys of the settings that FromStorage reads. Those that Config.Storage writes
// are the only ones that travel to executors: they name a server and hold keys
// that are meant for executors, never a way to get others.
const (
	KeyEndpoint     = "s3.endpoint"
	KeyRegion       = "s3.region"
	KeyPathStyle    = "s3.path-style-access"
	KeyAccessKeyID  = "s3.access-key-id"
	KeySecretKey    = "s3.secret-access-key"
	KeySessionToken = "s3.session-token"

	// KeyCredentials is "default" for the SDK's own chain.
	KeyCredentials = "s3.credentials"
	KeyProfile     = "s3.profile"
	KeyRoleARN     = "s3.role-arn"
	KeyTokenFile   = "s3.web-identity-token-file"
	KeySTSEndpoint = "s3.sts-endpoint"

	// KeyCredential stands for keys in what travels to executors: the name under
	// which the scheduler gives a job's executors keys, as long as the job runs.
	KeyCredential = "firn.credential"
)

// Config says how to reach object stores. The zero Config reaches local files,
// and public S3 objects in us-east-1. Credentials come from one place: the first
// of Renewer, Provider, AccessKeyID, TokenFile, Profile and DefaultChain that is set; else
// requests are anonymous. Unless one of the last three is set, nothing is taken
// from the environment, from files or from instance metadata.
type Config struct {
	// Endpoint is the URL of an S3-compatible server; empty for AWS.
	Endpoint string
	// Region is the region to sign for; when empty, that of the profile or the
	// environment if credentials come from there, else us-east-1.
	Region string
	// PathStyle puts the bucket into the path. It is always on with an
	// Endpoint unless VirtualHost is set.
	PathStyle   bool
	VirtualHost bool

	// Provider is asked for keys, and again before they expire.
	Provider Provider
	// Renewer is instead of a Provider for keys that are minted elsewhere.
	Renewer Renewer
	// AccessKeyID, SecretAccessKey and SessionToken are static credentials.
	AccessKeyID, SecretAccessKey, SessionToken string
	// TokenFile has a web identity token, for which STS gives keys of RoleARN.
	// The file is read anew each time. STSEndpoint is the URL of another STS
	// than AWS's in the region.
	TokenFile, RoleARN, STSEndpoint string
	// Profile is the name of a profile in AWS's shared files
	// (AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE).
	Profile string
	// DefaultChain takes credentials where the AWS SDK looks by itself:
	// environment, shared files, web identity, container, instance metadata,
	// the last one unless AWS_EC2_METADATA_DISABLED is true.
	DefaultChain bool
}

// Keys are credentials of an S3 store.
type Keys struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	// Expires is when they end; zero for never.
	Expires time.Time
}

// FromStorage reads the settings of plan.Pinned.Storage, and those of a catalog.
// Unknown keys are left out.
func FromStorage(m map[string]string) Config {
	c := Config{
		Endpoint:        m[KeyEndpoint],
		Region:          m[KeyRegion],
		AccessKeyID:     m[KeyAccessKeyID],
		SecretAccessKey: m[KeySecretKey],
		SessionToken:    m[KeySessionToken],
		Profile:         m[KeyProfile],
		RoleARN:         m[KeyRoleARN],
		TokenFile:       m[KeyTokenFile],
		STSEndpoint:     m[KeySTSEndpoint],
		DefaultChain:    m[KeyCredentials] == "default",
	}
	if s, ok := m[KeyPathStyle]; ok {
		on, err := strconv.ParseBool(s)
		c.PathStyle = on
		c.VirtualHost = err == nil && !on
	}
	return c
}

// Storage is the inverse of FromStorage for what may travel to executors: the
// server and static keys. It is nil when nothing is set. Where keys come from
// elsewhere, Resolve gets them first.
func (c Config) Storage() map[string]string {
	m := map[string]string{}
	for k, v := range map[string]string{
		KeyEndpoint: c.Endpoint, KeyRegion: c.Region, KeyAccessKeyID: c.AccessKeyID,
		KeySecretKey: c.SecretAccessKey, KeySessionToken: c.SessionToken,
	} {
		if v != "" {
			m[k] = v
		}
	}
	switch {
	case c.PathStyle:
		m[KeyPathStyle] = "true"
	case c.VirtualHost:
		m[KeyPathStyle] = "false"
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
