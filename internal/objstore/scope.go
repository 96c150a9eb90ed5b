package objstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Scope is what keys are for. Nothing else may be done with them.
type Scope struct {
	// Write is a prefix, a URI that ends in a slash, below which objects may be
	// written and looked at; not deleted, nor listed.
	Write string
	// Read are the objects that may be read; one that ends in * stands for all
	// that begin so.
	Read []string
	// List are the prefixes that may be listed.
	List []string
}

const (
	// scopedFor is how long narrowed keys hold: the shortest that all servers give.
	scopedFor = 15 * time.Minute
	// anyRole is for servers that have one session policy and no roles, as MinIO.
	anyRole = "arn:aws:iam::000000000000:role/firn"
	// maxPolicy is how long an inline session policy may be.
	maxPolicy = 2048
)

// Narrows says whether the store's configuration has what Narrow needs: an STS
// endpoint or a role, and keys or a token to ask with.
func (c Config) Narrows() bool {
	return (c.STSEndpoint != "" || c.RoleARN != "") && (c.AccessKeyID != "" || c.Dynamic())
}

// Narrow asks STS for keys that are good for the scope alone. The names of the scope's buckets and objects can't
// hold *, ? or $, which mean something in a policy.
func (c Config) Narrow(ctx context.Context, s Scope) (Keys, error) {
	policy, err := s.policy()
	if err != nil {
		return Keys{}, err
	}
	client := &http.Client{Transport: defaultTuning.transport}
	if c.TokenFile != "" && c.AccessKeyID == "" {
		return c.narrowIdentity(ctx, client, policy)
	}
	own, _, err := c.Resolve(ctx)
	if err != nil {
		return Keys{}, err
	}
	region, provider, err := own.credentials(client)
	if err != nil {
		return Keys{}, err
	}
	o := sts.Options{Region: region, HTTPClient: client, Credentials: provider}
	if c.STSEndpoint != "" {
		o.BaseEndpoint = aws.String(c.STSEndpoint)
	}
	out, err := sts.New(o).AssumeRole(ctx, &sts.AssumeRoleInput{
		RoleArn: aws.String(cmp.Or(c.RoleARN, anyRole)), RoleSessionName: aws.String("firn"),
		Policy: aws.String(policy), DurationSeconds: aws.Int32(int32(scopedFor / time.Second)),
	})
	if err != nil {
		return Keys{}, storageError("get scoped credentials", "s3", ErrPermission, err)
	}
	k := out.Credentials
	if k == nil || aws.ToString(k.AccessKeyId) == "" || aws.ToString(k.SessionToken) == "" || k.Expiration == nil {
		return Keys{}, storageError("get scoped credentials", "s3", ErrPermission, errors.New("STS answered without a key, a session token and an end"))
	}
	return Keys{
		AccessKeyID: *k.AccessKeyId, SecretAccessKey: aws.ToString(k.SecretAccessKey), SessionToken: *k.SessionToken, Expires: *k.Expiration,
	}, nil
}

// narrowIdentity is Narrow for a web identity: the role is assumed once, under the
// policy.
func (c Config) narrowIdentity(ctx context.Context, client *http.Client, policy string) (Keys, error) {
	o := sts.Options{Region: cmp.Or(c.Region, defaultRegion), HTTPClient: client, Credentials: aws.AnonymousCredentials{}}
	if c.STSEndpoint != "" {
		o.BaseEndpoint = aws.String(c.STSEndpoint)
	}
	p := stscreds.NewWebIdentityRoleProvider(sts.New(o), c.RoleARN, stscreds.IdentityTokenFile(c.TokenFile), func(o *stscreds.WebIdentityRoleOptions) {
		o.Policy, o.Duration = &policy, scopedFor
	})
	k, err := p.Retrieve(ctx)
	if err != nil {
		return Keys{}, storageError("get scoped credentials", "s3", ErrPermission, err)
	}
	return Keys{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken, Expires: k.Expires}, nil
}

// Server is what of the Config says where the store is: nothing secret.
func (c Config) Server() Config {
	return Config{Endpoint: c.Endpoint, Region: c.Region, PathStyle: c.PathStyle, VirtualHost: c.VirtualHost}
}

type statement struct {
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// policy is the scope as an inline session policy.
func (s Scope) policy() (string, error) {
	var all []statement
	if s.Write != "" {
		if !strings.HasSuffix(s.Write, "/") {
			return "", fmt.Errorf("the prefix %s doesn't end in a slash", s.Write)
		}
		at, err := resource(s.Write + "*")
		if err != nil {
			return "", err
		}
		all = append(all, statement{
			Effect: "Allow", Resource: []string{at},
			// GetObject is for a HEAD of the own object, when the reply to its PUT was lost.
			Action: []string{"s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"},
		})
	}
	if len(s.Read) > 0 {
		var at []string
		for _, r := range s.Read {
			one, err := resource(r)
			if err != nil {
				return "", err
			}
			at = append(at, one)
		}
		slices.Sort(at)
		all = append(all, statement{Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: slices.Compact(at)})
	}
	for _, l := range s.List {
		at, err := resource(l + "*")
		if err != nil {
			return "", err
		}
		bucket, key, _ := strings.Cut(at, "/")
		all = append(all, statement{
			Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{bucket},
			Condition: map[string]map[string][]string{"StringLike": {"s3:prefix": {key}}},
		})
	}
	if len(all) == 0 {
		return "", errors.New("the scope of the credentials is empty")
	}
	raw, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": all})
	if err == nil && len(raw) > maxPolicy {
		err = fmt.Errorf("the session policy of the scope has %d bytes, and may have %d", len(raw), maxPolicy)
	}
	return string(raw), err
}

// resource names an object, or with * at the end a prefix, as policies do.
func resource(uri string) (string, error) {
	bucket, key, err := splitS3("scope credentials to", uri, false)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(bucket+strings.TrimSuffix(key, "*"), "*?$") {
		return "", badLocation("scope credentials to", uri, errors.New("its name has *, ? or $, which mean something else in a policy"))
	}
	return "arn:aws:s3:::" + bucket + "/" + key, nil
}
