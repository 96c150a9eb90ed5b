package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Provider gives the keys to sign with. It is called by one goroutine at a time
// for each store, first when the store is first used.
type Provider func(context.Context) (Keys, error)

const (
	defaultRegion = "us-east-1"
	// renewBefore is how long before their end keys are got anew.
	renewBefore = time.Minute
)

// Dynamic says whether keys come from somewhere else than the Config itself.
func (c Config) Dynamic() bool {
	return c.Renewer != nil || c.Provider != nil || (c.AccessKeyID == "" && (c.TokenFile != "" || c.Profile != "" || c.DefaultChain))
}

// Resolve gets the keys that the Config stands for now, and gives it with these in
// place: it can be handed to another process then. The time is when they end,
// zero for never.
func (c Config) Resolve(ctx context.Context) (Config, time.Time, error) {
	if !c.Dynamic() {
		return c, time.Time{}, nil
	}
	region, provider, err := c.credentials(http.DefaultClient)
	if err != nil {
		return c, time.Time{}, err
	}
	k, err := provider.Retrieve(ctx)
	if err != nil {
		return c, time.Time{}, credentialsError(err)
	}
	out := Config{
		Endpoint: c.Endpoint, Region: region, PathStyle: c.PathStyle, VirtualHost: c.VirtualHost,
		AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken,
	}
	if k.CanExpire {
		return out, k.Expires, nil
	}
	return out, time.Time{}, nil
}

func credentialsError(err error) error {
	return storageError("get credentials", "s3", ErrPermission, err)
}

// credentials gives the region to sign for and the provider of keys. It reads
// files but asks nobody.
func (c Config) credentials(client aws.HTTPClient) (region string, p aws.CredentialsProvider, err error) {
	region = c.Region
	if region == "" {
		region = defaultRegion
	}
	switch {
	case c.Renewer != nil:
		return region, renewing(c.Renewer), nil
	case c.Provider != nil:
		return region, cached(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			k, err := c.Provider(ctx)
			return aws.Credentials{
				AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken,
				CanExpire: !k.Expires.IsZero(), Expires: k.Expires, Source: "firn",
			}, err
		})), nil
	case c.AccessKeyID != "":
		return region, credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken), nil
	case c.TokenFile != "":
		if c.RoleARN == "" {
			return "", nil, credentialsError(errors.New(KeyTokenFile + " needs " + KeyRoleARN))
		}
		o := sts.Options{Region: region, HTTPClient: client, Credentials: aws.AnonymousCredentials{}}
		if c.STSEndpoint != "" {
			o.BaseEndpoint = aws.String(c.STSEndpoint)
		}
		return region, cached(stscreds.NewWebIdentityRoleProvider(sts.New(o), c.RoleARN, stscreds.IdentityTokenFile(c.TokenFile))), nil
	case c.Profile != "", c.DefaultChain:
		return c.fromSDK()
	}
	return region, aws.AnonymousCredentials{}, nil
}

// fromSDK looks where the SDK does, with the SDK's own client for what must be
// asked there.
func (c Config) fromSDK() (region string, p aws.CredentialsProvider, err error) {
	var options []func(*awsconfig.LoadOptions) error
	if c.Profile != "" {
		options = append(options, awsconfig.WithSharedConfigProfile(c.Profile))
	}
	if c.Region != "" {
		options = append(options, awsconfig.WithRegion(c.Region))
	}
	loaded, err := awsconfig.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		return "", nil, credentialsError(fmt.Errorf("read AWS's shared files: %w", err))
	}
	if loaded.Region == "" {
		loaded.Region = defaultRegion
	}
	return loaded.Region, loaded.Credentials, nil
}

func cached(p aws.CredentialsProvider) aws.CredentialsProvider {
	return aws.NewCredentialsCache(p, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore })
}
