variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of the service: that of the database."
  type        = string
}

variable "name" {
  description = "Name of the service."
  type        = string
  default     = "wakeq"
}

variable "image" {
  description = "The `wakeq` image, preferably by digest."
  type        = string
}

variable "account" {
  description = "Address of the account that the service runs as."
  type        = string
}

variable "topic" {
  description = "Name of the topic: WAKEQ_TOPIC. In push mode set it to a literal: the outputs of `queue` depend on this service's URL."
  type        = string
}

variable "database" {
  description = "Connection name and secret of the database, from the outputs of `database`."
  type        = object({ connection_name = string, secret = string })
}

variable "secrets" {
  description = "Environment variables from Secret Manager: variable name to secret id. The account must be able to read the secrets."
  type        = map(string)
  default     = {}
}

variable "network" {
  description = "The network from which the database is reached."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork of the instances."
  type        = string
}

variable "audience" {
  description = "Audience of the Google ID tokens that the API accepts (docs/access.md); with null it accepts only keys."
  type        = string
  default     = null
}

variable "push" {
  description = "Push mode: the service account and the audience of accepted tokens, and the timeout of the longest handler; with null the service is only the API."
  type = object({
    account           = string
    audience          = string
    handler_timeout_s = number
  })
  default = null

  validation {
    condition     = var.push == null || try(var.push.handler_timeout_s >= 1 && var.push.handler_timeout_s <= 600, false)
    error_message = "Pub/Sub waits at most 600 s for a response: run longer handlers in a worker pool."
  }
}

variable "capacity" {
  description = "Concurrent requests per instance; in push mode, concurrent handlers."
  type        = number
  default     = 64
}

variable "min_instances" {
  description = "Minimum number of instances."
  type        = number
  default     = 0
}

variable "max_instances" {
  description = "Maximum number of instances. Each may use nine connections to Postgres."
  type        = number
  default     = 10
}

variable "limits" {
  description = "CPU and memory of an instance."
  type        = map(string)
  default     = { cpu = "1", memory = "512Mi" }
}

variable "ingress" {
  description = "INGRESS_TRAFFIC_ALL, or INGRESS_TRAFFIC_INTERNAL_ONLY if all emitters are in this project's networks; it also admits the project's Pub/Sub and Cloud Scheduler."
  type        = string
  default     = "INGRESS_TRAFFIC_ALL"
}

variable "egress" {
  description = "PRIVATE_RANGES_ONLY reaches HTTP targets directly; ALL_TRAFFIC sends everything through the network, so that it leaves from its NAT's address."
  type        = string
  default     = "PRIVATE_RANGES_ONLY"
}

variable "trusted_proxies" {
  description = "Address ranges of the proxies whose X-Forwarded-For is trusted: WAKEQ_TRUSTED_PROXIES. The default is Cloud Run's; behind a load balancer add its ranges, and the address of its forwarding rule as /32 (docs/operations.md)."
  type        = list(string)
  default     = ["169.254.0.0/16"]

  validation {
    condition     = alltrue([for range in var.trusted_proxies : try(cidrhost(range, 0) == split("/", range)[0], false)])
    error_message = "Write each range with its first address, such as 130.211.0.0/22 or 203.0.113.7/32."
  }
}

variable "env" {
  description = "Additional environment variables: docs/settings.md."
  type        = map(string)
  default     = {}
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the service."
  type        = bool
  default     = true
}
